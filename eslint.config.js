import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/*.min.js", "build/", ".venv*/"] },
  js.configs.recommended,
  { languageOptions: { globals: globals.browser } },
  {
    rules: {
      curly: ["error", "multi-line"],
      eqeqeq: ["error", "always", { null: "ignore" }],
      "max-statements-per-line": ["error", { max: 1 }],
      "no-var": "error",
      "one-var": ["error", "never"],
      "prefer-const": "error",
    },
  },
  { files: ["**/reports/*.js"], languageOptions: { sourceType: "script" } },
];
