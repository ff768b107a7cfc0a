// Many points in one draw call of WebGL, by twgl.js: colors are sent when they change, a frame sends where to look.
import * as twgl from "/static/twgl.min.js";

const VERTEX = `#version 300 es
in vec2 place;
in vec4 color;
uniform vec4 view;  // middle, and how far the edges of the canvas lie from it
uniform float size;
out vec4 tint;
void main() {
  vec2 there = (place - view.xy) / view.zw;
  gl_Position = vec4(there.x, -there.y, 0.0, 1.0);
  gl_PointSize = size;
  tint = color;
}`;
const FRAGMENT = `#version 300 es
precision highp float;
in vec4 tint;
uniform float size;
out vec4 ink;
void main() {
  float inside = clamp((0.5 - length(gl_PointCoord - 0.5)) * size, 0.0, 1.0);  // one pixel of smooth edge
  ink = vec4(tint.rgb * tint.a, tint.a) * inside;
}`;

export class Points {
  /** Points on a canvas; null where the browser has no WebGL 2. */
  static on(canvas, restored) {
    const gl = canvas.getContext("webgl2", { antialias: false, depth: false });
    if (!gl) return null;
    const points = new Points();
    Object.assign(points, { canvas, gl });
    canvas.addEventListener("webglcontextlost", (event) => {
      event.preventDefault();
      points.program = null;
    });
    canvas.addEventListener("webglcontextrestored", () => {
      points.build();
      restored();
    });
    points.build();
    return points.program ? points : null;
  }

  build() {
    const { gl } = this;
    this.program = twgl.createProgramInfo(gl, [VERTEX, FRAGMENT]);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    if (this.places) this.take(this.places);
  }

  /** Places [x, y, x, y, ...]; their colors follow. */
  take(places) {
    this.places = places;
    this.buffers = twgl.createBufferInfoFromArrays(this.gl, {
      place: { numComponents: 2, data: places },
      color: {
        numComponents: 4,
        data: this.colors ?? new Uint8Array(2 * places.length),
        normalize: true,
        drawType: this.gl.DYNAMIC_DRAW,
      },
    });
  }

  /** One color of four bytes for each point. */
  paint(colors) {
    this.colors = colors;
    twgl.setAttribInfoBufferFromArray(this.gl, this.buffers.attribs.color, colors);
  }

  draw(view, scale, radius, width, height, dense) {
    const { gl, canvas, program, buffers } = this;
    if (!program || gl.isContextLost()) return;
    const wide = Math.round(width * dense);
    const high = Math.round(height * dense);
    if (canvas.width !== wide || canvas.height !== high) {
      Object.assign(canvas, { width: wide, height: high });
    }
    gl.viewport(0, 0, wide, high);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.useProgram(program.program);
    twgl.setBuffersAndAttributes(gl, program, buffers);
    twgl.setUniforms(program, {
      view: [view.x, view.y, width / 2 / scale, height / 2 / scale],
      size: 2 * radius * dense + 1,
    });
    twgl.drawBufferInfo(gl, buffers, gl.POINTS);
  }
}
