//go:build page

package page

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

var rewrite = flag.Bool("rewrite", false, "write the screenshots of the documentation")

// stand is a replica with its engines, and a browser at its status page.
type stand struct {
	engines     *fleet.Fleet
	front       string // Envoy; "": none
	admin       string
	pid         int             // of grapevine
	kill        func()          // kills it
	restarted   bool            // the incident restarts grapevine
	environment []string        // of grapevine, in addition to the test's
	ctx         context.Context // of the browser

	mu     sync.Mutex
	errors []string // of scripts and of the content security policy
}

// open starts `grapevine up` with the arguments of a user in front of n engines, and opens the page.
func open(t *testing.T, n int, o sim.Options, args ...string) *stand {
	t.Helper()
	return openFleet(t, fleet.Options{Engines: n, Engine: o}, args...)
}

// openFleet is open with engines that differ.
func openFleet(t *testing.T, f fleet.Options, args ...string) *stand {
	t.Helper()
	model := filepath.Join(t.TempDir(), "model")
	if err := vocab.New().WriteModel(model); err != nil {
		t.Fatal(err)
	}
	f.Engine.Model, f.Engine.Events, f.Engine.Sources = "org/model", &sim.EventOptions{}, "ranks"
	engines, err := fleet.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engines.Close() })
	s := &stand{engines: engines, front: parts.FreeAddress(t), admin: parts.FreeAddress(t)}
	args = append([]string{"up", "--listen", s.front, "--admin", s.admin, "--envoy", parts.Envoy(t), "--model", "org/model=" + model}, args...)
	for _, e := range engines.Engines() {
		args = append(args, "--engine", e.Addr())
	}
	s.run(t, args...)
	testkit.Await(t, "the first answer", func() bool { return s.ask(t.Context(), "", 1) == 0 })
	s.browse(t)
	return s
}

// program returns the path of grapevine, which is built once for all tests.
func program(t *testing.T) string {
	t.Helper()
	built.Do(func() { build(t) })
	if built.path == "" {
		t.Fatal("grapevine could not be built")
	}
	return built.path
}

var built struct {
	sync.Once
	dir, path string
}

func build(t *testing.T) {
	t.Helper()
	parts.Full(t)
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		t.Fatal(err)
	}
	built.dir = dir
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "grapevine"), "github.com/grapevine-epp/grapevine/cmd/grapevine").CombinedOutput(); err != nil {
		t.Fatalf("building grapevine: %v\n%s", err, out)
	}
	built.path = filepath.Join(dir, "grapevine")
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// run runs grapevine until the test ends or s.kill is called.
func (s *stand) run(t *testing.T, args ...string) {
	t.Helper()
	var log parts.Output
	cmd := exec.Command(program(t), args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &log, &log, append(os.Environ(), append(s.environment, "HF_HUB_OFFLINE=1", "HF_HOME="+t.TempDir())...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { _ = cmd.Wait() })
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		end()
		if t.Failed() {
			t.Logf("%s:\n%s", args[0], log.String())
		}
	})
	s.pid, s.kill = cmd.Process.Pid, func() { _ = cmd.Process.Kill(); end() }
}

// browse opens the page in a browser.
func (s *stand) browse(t *testing.T) {
	t.Helper()
	s.startBrowser(t)
	s.do(t, chromedp.Navigate("http://"+s.admin+"/"))
	s.await(t, `document.querySelector("#out h1") !== null`, "true")
}

// startBrowser starts a browser. Errors of its pages fail the test.
func (s *stand) startBrowser(t *testing.T) {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(parts.Browser(t)), chromedp.NoSandbox, chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(testkit.HangTimeout))
	browser, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(cancel)
	s.ctx = ctx
	messages := chromedp.Console(ctx) // starts the browser, which lives as long as this context
	go func() {                       // ends with the browser
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" {
				s.mu.Lock()
				s.errors = append(s.errors, m.String())
				s.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.errors {
			if s.restarted && strings.Contains(e, "ERR_CONNECTION_REFUSED") {
				continue // the page has tried while no replica ran
			}
			t.Errorf("the page reports an error: %s", e)
		}
	})
}

// ask sends n requests of a tenant through Envoy, one after the other, and returns how many failed.
func (s *stand) ask(ctx context.Context, tenant string, n int) (failed int) {
	for i := range n {
		prompt := rand.IntN(200) // many, so that every engine is chosen
		body := fmt.Sprintf(`{"model":"org/model","stream":true,"max_tokens":8,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"%s"}]}`, strings.Repeat(fmt.Sprint("words of prompt ", prompt, " "), 40))
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.front+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			return n
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Request-Id", fmt.Sprint("request-", i))
		req.Header.Set("X-Gateway-Inference-Fairness-Id", tenant)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			failed++
			continue
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			failed++
		}
	}
	return failed
}

// do runs actions in the browser.
func (s *stand) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, testkit.HangTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// eval returns the text of an expression in the page.
func (s *stand) eval(t *testing.T, expression string) string {
	t.Helper()
	return result(t, s, chromedp.Evaluate[string]("String("+expression+")"))
}

// result runs an action in the browser and returns its result.
func result[T any](t *testing.T, s *stand, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, testkit.HangTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// await waits until an expression has a value that contains want.
func (s *stand) await(t *testing.T, expression, want string) {
	t.Helper()
	testkit.Eventually(t, func() string {
		if got := s.eval(t, expression); !strings.Contains(got, want) {
			return fmt.Sprintf("%s is %q, want %q in it", expression, got, want)
		}
		return ""
	})
}

// screenshot writes the page as a picture of the documentation.
func (s *stand) screenshot(t *testing.T, name string) {
	t.Helper()
	s.keep(t, name, result(t, s, chromedp.FullScreenshot(100)))
}

// pictureOf writes the first element that a selector matches as a picture of the documentation.
func (s *stand) pictureOf(t *testing.T, selector, name string) {
	t.Helper()
	s.do(t, chromedp.EmulateViewport(900, 900))
	s.keep(t, name, result(t, s, chromedp.Screenshot(selector)))
}

// keep writes a picture with -rewrite. Without it, the documentation must have one of that name.
func (s *stand) keep(t *testing.T, name string, png []byte) {
	t.Helper()
	if len(png) < 5_000 {
		t.Errorf("%s has %d bytes, want the picture of a page", name, len(png))
	}
	file := filepath.Join("../../../docs", name)
	if *rewrite {
		if err := os.WriteFile(file, png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

const (
	firstHeading = `document.querySelector("#out section").textContent`
	charts       = `[...document.querySelectorAll("#out svg")].map(e => e.getAttribute("aria-label")).join("\n")`
)

// keepAsking sends requests of a tenant from a number of clients until the test ends.
func (s *stand) keepAsking(t *testing.T, tenant string, clients int) {
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				s.ask(ctx, tenant, 1)
				time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond) // clients think
			}
		})
	}
	t.Cleanup(func() { stop(); wg.Wait() })
}

// TestPage follows an operator: a calm page, the last hour of traffic, a request's explanation, a
// problem with its remedy on top when an engine fails.
func TestPage(t *testing.T) {
	s := open(t, 2, sim.Options{Speed: 20})
	s.keepAsking(t, "", 1)
	s.await(t, charts, "requests: now ")
	testkit.Eventually(t, func() string { // a whole interval with requests
		got := s.eval(t, charts)
		for _, want := range []string{"errors: now 0/s", "first token: now median ", "waiting: now 0"} {
			if !strings.Contains(got, want) {
				return fmt.Sprintf("charts say %q, want %q", got, want)
			}
		}
		if strings.Contains(got, "requests: now 0/s") {
			return "no requests in the charts: " + got
		}
		return ""
	})
	if n := s.eval(t, `document.querySelectorAll("#out svg path[d^=M]").length`); n == "0" {
		t.Error("charts have no lines")
	}
	if *rewrite {
		s.await(t, `past.requests_per_s.length >= 18`, "true") // lines of three minutes
	}
	s.screenshot(t, "status-page.png")

	t.Run("model", func(t *testing.T) {
		s.do(t, chromedp.SetValue("#model", "org/model"))
		s.eval(t, `document.getElementById("model").dispatchEvent(new Event("change", { bubbles: true }))`)
		s.await(t, `past.model`, "org/model")
		s.await(t, `document.getElementById("model").value`, "org/model")
	})

	// The page is drawn each second. What the reader selected, and where the keyboard is, must stay.
	t.Run("selection and focus", func(t *testing.T) {
		s.eval(t, `(() => { const cell = [...document.querySelectorAll("#out td")].find(e => e.textContent.includes("127.0.0.1")); getSelection().selectAllChildren(cell);
			document.querySelector("#out a").focus(); window.before = heard; })()`)
		s.await(t, `heard > window.before + 2500`, "true") // two updates at least
		if got := s.eval(t, `getSelection().toString()`); !strings.Contains(got, "127.0.0.1") {
			t.Errorf("selected after updates: %q, want the endpoint's address", got)
		}
		if got := s.eval(t, `document.activeElement.tagName`); got != "A" {
			t.Errorf("focused after updates: %s, want the link", got)
		}
	})

	t.Run("keyboard", func(t *testing.T) {
		s.do(t, chromedp.Focus("#request"), chromedp.KeyEvent("request-0"+kb.Enter))
		s.await(t, `document.getElementById("explained").textContent`, "chosen: 127.0.0.1")
	})

	t.Run("phone", func(t *testing.T) {
		s.do(t, chromedp.EmulateViewport(390, 844))
		if got := s.eval(t, `document.documentElement.scrollWidth <= 390`); got != "true" {
			t.Errorf("the page is %s pixels wide on a phone of 390", s.eval(t, `document.documentElement.scrollWidth`))
		}
		s.do(t, chromedp.EmulateViewport(1280, 900))
	})

	// Text has a contrast of 4.5 in both colour schemes.
	for _, scheme := range []string{"light", "dark"} {
		t.Run("contrast/"+scheme, func(t *testing.T) {
			s.do(t, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
				_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				return err
			}))
			if got := s.eval(t, lowContrast); got != "" {
				t.Errorf("low contrast: %s", got)
			}
		})
	}

	t.Run("fault", func(t *testing.T) {
		_ = s.engines.Engines()[0].Close()
		began := time.Now()
		s.await(t, firstHeading, "Effect: ")
		t.Logf("the page names the problem after %s", time.Since(began).Round(100*time.Millisecond))
		s.await(t, firstHeading, s.engines.Engines()[0].Addr())
		if got := s.eval(t, `document.querySelectorAll("#out section ol li").length`); got == "0" {
			t.Error("the problem has no action")
		}
		s.await(t, `[...document.querySelectorAll("#out td .bad")].map(e => e.textContent).join(" ")`, "out")
		t.Logf("the page shows that the engine is out after %s", time.Since(began).Round(100*time.Millisecond))
		s.screenshot(t, "status-page-problem.png")
	})
}

// lowContrast lists texts whose contrast to the background is below 4.5, as WCAG AA computes it.
const lowContrast = `(() => {
	const canvas = document.createElement("canvas").getContext("2d");
	const rgb = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
	const light = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const dark = matchMedia("(prefers-color-scheme: dark)").matches;
	const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (rgb(c)[3] > 0) return c; } return dark ? "#121212" : "#ffffff"; };
	const low = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n = walk.nextNode(); n; n = walk.nextNode()) {
		const e = n.parentElement;
		if (!n.data.trim() || ["SCRIPT", "STYLE"].includes(e.tagName) || !e.checkVisibility()) continue;
		const a = light(getComputedStyle(e).color), b = light(ground(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) low.add(e.tagName + "." + e.className + " " + ratio.toFixed(2) + " " + n.data.trim().slice(0, 30));
	}
	return [...low].join("; ");
})()`
