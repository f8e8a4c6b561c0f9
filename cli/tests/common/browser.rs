//! A real browser without a window, spoken to over two pipes in the Chrome DevTools Protocol: JSON, each message
//! ended by a NUL (https://chromedevtools.github.io/devtools-protocol/).

use crate::common::Running;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A busy machine takes a while to start a browser.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser, gone with the test.
pub struct Browser {
    input: ChildStdin,
    output: mpsc::Receiver<Value>,
    last: u64,
    /// Events that came while an answer was waited for.
    events: Vec<Value>,
    _process: Running,
}

impl Browser {
    /// With its profile below `home`.
    pub fn start(home: &Path) -> Browser {
        let profile = format!("--user-data-dir={}", home.join("browser").display());
        // It reads commands at descriptor 3 and answers at 4. As root it has no sandbox of its own.
        let script = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", "--headless", "--no-sandbox"]);
        command.args(["--remote-debugging-pipe", "--no-first-run", "--disable-gpu"]);
        command.args(["--disable-dev-shm-usage", "--hide-scrollbars"]);
        command.args(["--disable-background-networking", profile.as_str()]);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh can be started");
        let input = process.stdin.take().expect("it is piped");
        let pipe = BufReader::new(process.stdout.take().expect("it is piped"));
        let (post, output) = mpsc::channel();
        std::thread::spawn(move || {
            for message in pipe.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("messages are JSON");
                if post.send(message).is_err() {
                    return;
                }
            }
        });
        Browser {
            input,
            output,
            last: 0,
            events: Vec::new(),
            _process: Running(process),
        }
    }

    /// Opens a file.
    pub fn open(&mut self, file: &Path) -> Tab<'_> {
        let blank = json!({"url": "about:blank"});
        let target = self.call("Target.createTarget", None, &blank);
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", None, &attach);
        let mut tab = Tab {
            session: attached["sessionId"].as_str().expect("a name").to_owned(),
            target: target["targetId"].clone(),
            browser: self,
            seen: Vec::new(),
        };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            tab.call(&format!("{domain}.enable"), &json!({}));
        }
        tab.load(file);
        tab
    }

    fn call(&mut self, method: &str, session: Option<&str>, params: &Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let sent = self.input.write_all(&bytes);
        sent.expect("chromium runs (make test installs it)");
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.next(until, method);
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer:#}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn next(&mut self, until: Instant, waits_for: &str) -> Value {
        let left = until.saturating_duration_since(Instant::now());
        let next = self.output.recv_timeout(left);
        next.unwrap_or_else(|e| panic!("chromium did not answer to {waits_for}: {e}"))
    }
}

/// A page that is open.
pub struct Tab<'a> {
    browser: &'a mut Browser,
    session: String,
    target: Value,
    /// Events of this page.
    seen: Vec<Value>,
}

impl Tab<'_> {
    fn call(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.browser.call(method, Some(&self.session), params);
        self.seen.append(&mut self.browser.events);
        answer
    }

    /// Gives the window another width, in pixels: below 600 it is that of a phone.
    pub fn resize(&mut self, width: u32) {
        let is_phone = width < 600;
        let screen =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        // Pictures are redrawn in the frame that follows.
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))");
    }

    fn load(&mut self, file: &Path) {
        let url = format!("file://{}", file.display());
        let went = self.call("Page.navigate", &json!({"url": url}));
        assert!(went["errorText"].is_null(), "{url}: {went:#}");
        self.wait_for_load(&url);
    }

    fn wait_for_load(&mut self, what: &str) {
        let until = Instant::now() + PATIENCE;
        let is_load = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.seen.iter().any(is_load) {
            let event = self.browser.next(until, what);
            self.seen.push(event);
        }
    }

    /// Reloads the same page with scripts switched off.
    pub fn reload_without_scripts(&mut self) {
        self.call(
            "Emulation.setScriptExecutionDisabled",
            &json!({"value": true}),
        );
        self.seen.retain(|e| e["method"] != "Page.loadEventFired");
        self.call("Page.reload", &json!({}));
        self.wait_for_load("a reload");
    }

    /// The value of an expression in the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &params);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer:#}"
        );
        answer["result"]["value"].clone()
    }

    /// Whether an expression becomes true.
    pub fn comes(&mut self, expression: &str) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if self.eval(expression) == true {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Moves the mouse, in pixels of the window; `kind` as the protocol names it.
    pub fn mouse(&mut self, kind: &str, (x, y): (f64, f64), more: &Value) {
        let mut params = json!({"type": kind, "x": x, "y": y});
        for (key, value) in more.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        self.call("Input.dispatchMouseEvent", &params);
    }

    /// Presses a key by its name.
    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let params = json!({"type": kind, "key": key, "code": key});
            self.call("Input.dispatchKeyEvent", &params);
        }
    }

    /// What went wrong in the page so far: words on the console, exceptions, what its own policy refused, and
    /// every request but the one for the page itself.
    pub fn complaints(&mut self) -> Vec<String> {
        // Events before this answer have arrived with it.
        self.eval("1");
        let own = self.eval("location.href");
        let complaint = |event: &Value| {
            let params = &event["params"];
            match event["method"].as_str()? {
                "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                    Some(params.to_string())
                }
                "Network.requestWillBeSent" => {
                    let url = &params["request"]["url"];
                    (*url != own).then(|| format!("requests {url}"))
                }
                _ => None,
            }
        };
        self.seen.iter().filter_map(complaint).collect()
    }

    /// A picture of the whole page, as a file.
    pub fn shoot(&mut self, file: &Path) {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let shot = self.call("Page.captureScreenshot", &params);
        let png = BASE64_STANDARD.decode(shot["data"].as_str().expect("text"));
        let directory = file.parent().expect("a file in a directory");
        std::fs::create_dir_all(directory).expect("the directory can be made");
        std::fs::write(file, png.expect("Base64")).expect("the picture can be written");
    }
}

impl Drop for Tab<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let target = json!({"targetId": self.target});
            self.browser.call("Target.closeTarget", None, &target);
            self.browser.events.clear();
        }
    }
}
