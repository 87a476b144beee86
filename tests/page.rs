//! The HTML page of `cx10 conform`, as a browser sees it: headless Chromium loads pages made from a stored result.
//!
//! Each page comes from a small server of ours, which notes what is asked for; other names lead nowhere, and a fetch that
//! fails or is forbidden is an error on the console. What the browser makes of a page is read from its document, by a script
//! that is added to a copy. The pages are left in `target/tmp/page-*/page.html`.

#[path = "page/kernels.rs"]
mod kernels;

use cx10::conform::result::{Kernel, Matrix, SCHEMA};
use kernels::{HOSTILE, OOPS, REFUSED, broken, plain};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Seconds that the browser may take for a page. It takes two.
const LIMIT: &str = "60";

/// The page that `cx10 conform --from` writes of these kernels.
fn page(name: &str, kernels: Vec<Kernel>) -> String {
    let matrix = Matrix {
        schema: SCHEMA,
        version: "0.1.0".into(),
        profile: "connectx10-c2c".into(),
        options: Vec::new(),
        complete: true,
        kernels,
    };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let (from, to) = (directory.join("result.json"), directory.join("page.html"));
    std::fs::write(&from, serde_json::to_vec(&matrix).expect("JSON")).expect("a result");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cx10"));
    command.args(["conform", "--quiet", "--from"]).arg(&from).arg("--html").arg(&to);
    let output = command.output().expect("cx10 starts");
    assert_eq!(output.status.code(), Some(2), "there are findings: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(&to).expect("a page")
}

/// Serves one page for every request, and notes the requests.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(page: String) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (requests, page): (Arc<Mutex<Vec<String>>>, _) = (Arc::default(), Arc::new(page));
        let noted = requests.clone();
        std::thread::spawn(move || {
            // A browser opens connections that it does not use: none may keep another waiting.
            for stream in listener.incoming().flatten() {
                let (noted, page) = (noted.clone(), page.clone());
                std::thread::spawn(move || answer(stream, &page, &noted));
            }
        });
        Server { address, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}

fn answer(stream: TcpStream, page: &str, noted: &Mutex<Vec<String>>) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut lines = BufReader::new(&stream).split(b'\n').map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    noted.lock().expect("no panic").push(String::from_utf8_lossy(&request).trim().to_owned());
    // To the end of the head.
    let _ = lines.find(|line| line.iter().all(u8::is_ascii_whitespace));
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\nContent-Length:";
    let _ = (&stream).write_all(format!("{head} {}\r\n\r\n{page}", page.len()).as_bytes());
}

/// What a browser made of a page.
struct Shown {
    /// Its document.
    document: String,
    /// What the page said on the console: errors, and what was kept from it.
    console: Vec<String>,
    requests: Vec<String>,
}

/// Loads a page. A machine without Chromium fails.
fn chromium(page: String, fragment: &str, options: &[&str]) -> Shown {
    static PROFILES: Mutex<u32> = Mutex::new(0);
    let number = {
        let mut profiles = PROFILES.lock().expect("no panic");
        *profiles += 1;
        *profiles
    };
    let profile = std::env::temp_dir().join(format!("cx10-page-{}-{number}", std::process::id()));
    let server = Server::new(page);
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=5",
        LIMIT,
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
    ]);
    command.args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.args(["--enable-logging=stderr", "--dump-dom"]).args(options);
    command.arg(format!("--user-data-dir={}", profile.display()));
    // The browser's own services must not reach anybody either.
    command.arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1");
    let output =
        command.arg(format!("http://{}/{fragment}", server.address)).output().expect("timeout (coreutils) starts");
    let _ = std::fs::remove_dir_all(&profile);
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(127) => panic!("this test needs Chromium: apt-get install chromium"),
        Some(124 | 137) => panic!("Chromium did not end within {LIMIT} s: {said}"),
        status => panic!("Chromium ended with {status:?}: {said}"),
    }
    Shown {
        document: String::from_utf8_lossy(&output.stdout).into_owned(),
        console: said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(),
        requests: server.requests(),
    }
}

/// What [`looks.js`](page/looks.js) says of a page at this width.
fn look(page: &str, width: u32, options: &[&str]) -> Value {
    // The page forbids itself scripts, so the copy must allow ours.
    let copy = page.replacen("default-src 'none';", "script-src 'unsafe-inline';", 1);
    assert_ne!(copy, page, "the page says what may run");
    let script = format!("<script id=\"looks\">{}</script></body>", include_str!("page/looks.js"));
    let copy = copy.replacen("</body>", &script, 1);
    let size = format!("--window-size={width},1000");
    let shown = chromium(copy, "", &[&[size.as_str()], options].concat());
    let (_, looked) = shown.document.split_once("<pre id=\"looked\">").unwrap_or_else(|| panic!("{:?}", shown.console));
    let (looked, _) = looked.split_once("</pre>").expect("an end");
    let look: Value = serde_json::from_str(looked).expect("JSON");
    // Also says that the console is seen at all.
    assert!(matches!(&shown.console[..], [line] if line.contains("looked")), "{:?}", shown.console);
    assert_eq!(shown.requests, ["GET / HTTP/1.1"]);
    look
}

fn three() -> Vec<Kernel> {
    vec![plain("7.3", "7.3.4+deb13-amd64"), plain("6.12", "6.12.57+deb13-amd64"), broken()]
}

#[test]
fn the_page_is_whole_as_it_is_and_fetches_nothing() {
    let shown = chromium(page("whole", three()), "", &[]);
    assert_eq!(shown.requests, ["GET / HTTP/1.1"], "nothing but the page");
    assert_eq!(shown.console, [""; 0]);
    let title = "<title>Conformance of Linux 7.3, 6.12, linux</title>";
    assert!(shown.document.contains(title), "{}", &shown.document[..2000]);
    assert!(!shown.document.contains("<script") && !shown.document.contains("<img"));
    assert!(shown.document.contains("&lt;script&gt;document.title='owned'&lt;/script&gt;"));
}

/// Whether the details around this place of a page or document are open.
fn is_open(document: &str, id: &str) -> bool {
    let at = document.find(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
    let details = document[..at].rfind("<details").expect("details");
    document[details..at].split_once('>').expect("a tag").0.contains(" open")
}

#[test]
fn a_link_into_closed_details_opens_them() {
    let page = page("link", vec![plain("7.3", "7.3.4+deb13-amd64")]);
    let ids = ["k0-flags-reg-mr-write", "k0-flags--keys", "k0-internal-mw-type-1"];
    let open = |document: &str| ids.map(|id| is_open(document, id));
    assert_eq!(open(&page), [false, false, true], "a finding is open");
    assert_eq!(open(&chromium(page.clone(), "#k0-flags-reg-mr-write", &[]).document), [true, false, true]);
    assert_eq!(open(&chromium(page, "#k0-flags--keys", &[]).document), [false, true, true]);
}

#[test]
fn one_kernel_has_its_answers_tries_refusals_and_keys() {
    let look = look(&page("one", vec![plain("7.3", "7.3.4+deb13-amd64")]), 1400, &[]);
    let rows = json!([
        ["reg_mr, write command", "ready"],
        ["reg_dmabuf_mr, ioctl", "finding"],
        ["netdev (mlx5e)", "ready"],
        ["memory window, type 1", "finding"],
        ["vDPA (mlx5_vdpa)", "absent"],
        ["NVMe over RDMA", "ready"]
    ]);
    assert_eq!(look["rows"], rows);
    assert_eq!(look["kernels"], json!([["3 ready", "2 finding", "1 absent"]]));
    let sections = json!([
        "Optional access flags",
        "Keys that the driver makes for itself",
        "Kernel protocols under every legal order"
    ]);
    assert_eq!(look["sections"], sections);
    assert_eq!(look["worse"], json!(["reg_dmabuf_mr, ioctl", "memory window, type 1"]));
    assert_eq!(look["headings"], 2, "a part without findings is not shown either");

    assert_eq!(look["tries"], json!([28, 9]));
    let bad: Vec<&Value> = look["bad"].as_array().expect("cells").iter().collect();
    assert_eq!(bad.len(), 11);
    assert!(bad.iter().all(|cell| cell[0] == "reg_dmabuf_mr, ioctl"), "{bad:?}");
    assert_eq!(look["clipped"], json!([]));
    assert_eq!(look["lines"][0], "none, bit 21, bit 22, bit 23, bit 24, bit 25, bit 26, bit 27, bit 28, bit 29");

    let refusal = look["refusals"][0].as_str().expect("a refusal");
    assert!(refusal.starts_with(&format!("{REFUSED}\n34.000000")), "{refusal}");
    assert_eq!(look["refusals"].as_array().map(Vec::len), Some(1), "three alike are shown once");
    assert!(look["logs"][0].as_str().expect("a log").contains("syndrome (0x230001), err(-22)"));

    // 13 and 2 tries made two keys each; 1 and 3; nine policies with 128 and 200.
    assert_eq!(look["bars"], json!([30, 4, 2952]));
    assert_eq!(look["listed"], look["bars"]);
    assert_eq!(look["lists"], json!([30, 2, 18]), "alike ones in one line");
    let pictures: Vec<u64> = look["pictures"].as_array().expect("pictures").iter().filter_map(Value::as_u64).collect();
    assert!(pictures.iter().all(|bars| (2..200).contains(bars)), "{pictures:?}");
    let first = json!([
        "1",
        "12.000000",
        "reg_mr, write command",
        "none",
        "1",
        "0x20",
        "free",
        "CREATE_MKEY",
        "created",
        "strong",
        ""
    ]);
    assert_eq!(look["firstLine"], first);
    assert_eq!(look["guests"].as_array().map(Vec::len), Some(11));
    is_well_made(&look);
}

#[test]
fn three_kernels_stand_side_by_side_and_hostile_text_stays_text() {
    let look = look(&page("three", three()), 1400, &[]);
    let rows = look["rows"].as_array().expect("rows");
    let verdicts = json!([
        ["reg_mr, write command", "ready", "ready", "finding"],
        ["reg_dmabuf_mr, ioctl", "finding", "finding", "crash"],
        ["netdev (mlx5e)", "ready", "ready", "not walked"],
        ["memory window, type 1", "finding", "finding", "not walked"],
        ["vDPA (mlx5_vdpa)", "absent", "absent", "not walked"],
        ["NVMe over RDMA", "ready", "ready", "crash"]
    ]);
    assert_eq!(json!(rows[..6]), verdicts);
    assert_eq!(rows.len(), 8);
    let text = HOSTILE.replace(['\u{1b}', '\u{202e}'], "\u{fffd}");
    assert_eq!(rows[6], json!([text, "not walked", "not walked", "finding"]));
    assert_eq!(rows[7][0].as_str().map(|title| title.chars().count()), Some(161), "a title without end is cut");
    assert_eq!(look["title"], "Conformance of Linux 7.3, 6.12, linux");
    assert_eq!(look["foreign"], 0, "no element came from a guest");
    let logs = look["logs"].as_array().expect("logs");
    assert!(logs.iter().any(|log| log.as_str().is_some_and(|log| log.ends_with(&format!("{text}\n")))), "{logs:?}");
    assert_eq!(look["marks"], json!([OOPS, format!("WARNING: {text}")]), "the kernel's complaint is marked");
    let open: Vec<&str> = look["open"].as_array().expect("details").iter().filter_map(Value::as_str).collect();
    assert!(open.iter().any(|summary| summary.starts_with("crashreg_dmabuf_mr, ioctl: with random: BUG")), "{open:?}");
    is_well_made(&look);
}

#[test]
fn it_fits_a_narrow_window_and_is_readable_in_the_dark() {
    let look = look(&page("narrow", three()), 500, &["--blink-settings=preferredColorScheme=0"]);
    assert_eq!((&look["width"], &look["dark"]), (&json!(500), &json!(true)));
    is_well_made(&look);
}

/// What holds for every page, at every width.
fn is_well_made(look: &Value) {
    assert_eq!((&look["overflow"], &look["overflowOpen"]), (&json!(0), &json!(0)), "wider than the window");
    assert!(look["links"].as_u64().expect("a number") > 10);
    for faults in ["astray", "twice", "outside", "faint"] {
        assert_eq!(look[faults], json!([]), "{faults}");
    }
    assert_eq!(look["bars"], look["listed"], "every key is in the picture and in the list");
}
