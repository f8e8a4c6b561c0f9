// A capture that is chosen or dropped goes to the server, whose page of it takes the place of this one.
(() => {
  const field = document.querySelector("#capture"), state = document.querySelector("#capture-state");
  const show = async file => {
    state.textContent = `Reading ${file.name} ...`;
    try {
      const answer = await fetch("capture.html?name=" + encodeURIComponent(file.name), {method: "PUT", body: file});
      const text = await answer.text();
      if (!answer.ok) {
        state.textContent = text;
        return;
      }
      document.open();
      document.write(text);
      document.close();
    } catch {
      state.textContent = "The server took no file of this size, or has ended.";
    }
  };
  field.onchange = () => field.files[0] && show(field.files[0]);
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", event => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) show(event.dataTransfer.files[0]);
  });
})();
