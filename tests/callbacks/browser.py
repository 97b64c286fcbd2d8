"""A headless Chromium, driven through its DevTools pipe: no package is needed for that.

Messages are JSON, each closed by a zero byte: written to the browser's descriptor 3, read from its descriptor 4.
"""

import fcntl
import json
import os
import select
import subprocess
import time

# Everything the page shows, those parts too that stand in shadow trees and in frames.
TEXT = """(() => {
  const texts = [];
  const walk = node => {
    if (node.nodeType === Node.TEXT_NODE) texts.push(node.textContent.trim());
    if (node.nodeType === Node.ELEMENT_NODE) {
      if (["STYLE", "SCRIPT", "NOSCRIPT"].includes(node.tagName) || node.hidden) return;
      for (const name of ["value", "title", "aria-label"]) texts.push(node.getAttribute(name) || "");
      if (node.shadowRoot) walk(node.shadowRoot);
      if (node.tagName === "IFRAME" && node.contentDocument) walk(node.contentDocument);
    }
    for (const child of node.childNodes) walk(child);
  };
  walk(document);
  return texts.filter(Boolean).join("\\n");
})()"""


class Browser:
    """One page of one browser: `program` is the path of Chromium, its profile lies in `folder`."""

    def __init__(self, program, folder):
        (to_read, self.pipe_in), (self.pipe_out, to_write) = os.pipe(), os.pipe()
        to_read, to_write = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_read, to_write))

        def at_3_and_4():
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--no-first-run")
        self.process = subprocess.Popen(
            [program, *options, "--remote-debugging-pipe", f"--user-data-dir={folder}", "--window-size=1400,1000"],
            preexec_fn=at_3_and_4,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._count, self._buffer, self._session = 0, b"", None
        self.events = []  # of the domains that are enabled
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def send(self, method, **parameters):
        """One command; its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self.pipe_in, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._next(deadline)
            if "method" in answer:
                self.events.append(answer)
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self.pipe_out], [], [], max(0, deadline - time.monotonic()))
            assert ready, "The browser does not answer."
            part = os.read(self.pipe_out, 1 << 20)
            assert part, "The browser has ended."
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, url):
        """Goes to a page."""
        self.send("Page.navigate", url="about:blank")  # another place of the same page would not be loaded anew
        self.send("Page.navigate", url=url)

    def run(self, script):
        """What a piece of JavaScript gives."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def text(self):
        """All that the page shows, each run of white space as one space."""
        return " ".join(self.run(TEXT).split())

    def waits_for(self, *words, seconds=60):
        """Returns the text of the page as soon as it has all the words."""
        deadline = time.monotonic() + seconds
        while True:
            texts = self.text()
            missing = [word for word in words if word not in texts]
            if not missing:
                return texts
            assert time.monotonic() < deadline, f"{missing} not in:\n{texts}"
            self.run("new Promise(done => setTimeout(done, 100))")

    def close(self):
        """Ends the browser."""
        self.process.terminate()
        self.process.wait(timeout=60)
        os.close(self.pipe_in)
        os.close(self.pipe_out)
