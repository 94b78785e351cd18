// Search runs in a worker, and browsers start none from a page that was opened as a file.
// There a hidden frame takes its place: it runs the worker's script and exchanges the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.appendChild(frame);
      const inside = frame.contentWindow;
      const waiting = [];
      this.postMessage = (data) => waiting.push(data);
      inside.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      inside.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => run(next)), Promise.resolve());
      this.terminate = () => frame.remove();
      const run = (source) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          script.src = source;
          script.onload = done;
          script.onerror = failed;
          inside.document.documentElement.appendChild(script);
        });
      run(url).then(() => {
        const send = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
        this.postMessage = (data) => setTimeout(() => send(data));
        waiting.forEach(this.postMessage);
      });
    }
  };
}
