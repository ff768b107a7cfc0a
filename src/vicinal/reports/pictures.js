// A thumbnail of the retrievals opens in a dialog: larger, with its class and name. Text only as textContent.
"use strict";
(() => {
  const pictures = document.querySelectorAll("button.opens");
  if (!pictures.length) return;
  const dialog = document.createElement("dialog");
  const view = document.createElement("span");
  const label = document.createElement("bdi");
  const name = document.createElement("small");
  const close = document.createElement("button");
  dialog.className = "opened";
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  }); // beside the picture
  dialog.append(view, label, name, close);
  document.body.append(dialog);
  for (const picture of pictures) {
    picture.addEventListener("click", () => {
      view.className = "thumb opens";
      view.style.backgroundPosition = picture.style.backgroundPosition;
      label.textContent = picture.dataset.label;
      name.textContent = picture.dataset.name;
      dialog.showModal();
    });
  }
})();
