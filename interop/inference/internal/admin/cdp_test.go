package admin

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium, spoken to through its DevTools protocol over a pair of
// pipes: messages of JSON with a zero byte behind each.
type browser struct {
	t       *testing.T
	to      *os.File
	mu      sync.Mutex
	next    int
	answers map[int]chan message
	events  []message
	gone    chan struct{}
}

type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// browserEnv names the browser, such as bin/browser/headless_shell; else it is looked for.
const browserEnv = "USMBRIDGE_BROWSER"

// findBrowser skips the test where there is none.
func findBrowser(t *testing.T) string {
	if path := os.Getenv(browserEnv); path != "" {
		return path
	}
	if path, err := filepath.Abs("../../../../bin/browser/headless_shell"); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	for _, name := range []string{"chrome-headless-shell", "chromium-headless-shell", "chromium", "google-chrome", "chromium-browser"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium: `make browser` fetches one (npm, 70 MB), and " + browserEnv + " names another")
	return ""
}

func startBrowser(t *testing.T) *browser {
	path := findBrowser(t)
	theirs, to, err := os.Pipe()
	require.NoError(t, err)
	from, theirOut, err := os.Pipe()
	require.NoError(t, err)
	home := t.TempDir()
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--no-zygote", "--in-process-gpu", "--use-gl=angle", "--use-angle=swiftshader",
		"--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--user-data-dir="+home)
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.ExtraFiles = []*os.File{theirs, theirOut}
	require.NoError(t, cmd.Start())
	theirs.Close()
	theirOut.Close()
	b := &browser{t: t, to: to, answers: map[int]chan message{}, gone: make(chan struct{})}
	go b.read(from)
	t.Cleanup(func() {
		to.Close() // which ends it
		end := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		end.Stop()
		<-b.gone
	})
	return b
}

func (b *browser) read(from *os.File) {
	defer close(b.gone)
	defer from.Close()
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.ID == 0 {
			b.events = append(b.events, m)
		} else if c := b.answers[m.ID]; c != nil {
			delete(b.answers, m.ID)
			c <- m
		}
		b.mu.Unlock()
	}
}

// call asks the browser and reads its answer into result, which may be nil.
func (b *browser) call(session, method string, params, result any) error {
	b.mu.Lock()
	b.next++
	id, c := b.next, make(chan message, 1)
	b.answers[id] = c
	b.mu.Unlock()
	if params == nil {
		params = struct{}{}
	}
	text, err := json.Marshal(message{ID: id, Session: session, Method: method, Params: params})
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case m := <-c:
		if m.Error != nil {
			return errors.New(method + ": " + m.Error.Message)
		}
		if result != nil {
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-b.gone:
		return errors.New(method + ": the browser has ended")
	case <-time.After(time.Minute):
		return errors.New(method + ": no answer in a minute")
	}
}

// tab is a page in the browser.
type tab struct {
	*browser
	session string
}

// size is of a screen, in pixels of style sheets.
type size struct {
	width, height int
	phone         bool
}

func (b *browser) open(url string, s size, scheme string) *tab {
	var target struct {
		ID string `json:"targetId"`
	}
	require.NoError(b.t, b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target))
	var session struct {
		ID string `json:"sessionId"`
	}
	require.NoError(b.t, b.call("", "Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &session))
	p := &tab{b, session.ID}
	p.must("Page.enable", nil)
	p.must("Runtime.enable", nil)
	p.must("Log.enable", nil)
	p.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": s.width, "height": s.height, "deviceScaleFactor": 1, "mobile": s.phone})
	p.must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
	p.must("Page.navigate", map[string]any{"url": url})
	return p
}

func (p *tab) must(method string, params any) {
	p.t.Helper()
	require.NoError(p.t, p.call(p.session, method, params, nil))
}

// eval runs a script, waits for its promise, and reads its value into result.
func (p *tab) eval(script string, result any) error {
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := p.call(p.session, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}, &out)
	if err != nil {
		return err
	}
	if out.Exception != nil {
		return fmt.Errorf("%s %s", out.Exception.Text, out.Exception.Exception.Description)
	}
	if result == nil || out.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(out.Result.Value, result)
}

// wait waits until a script gives true.
func (p *tab) wait(script string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		var ok bool
		return p.eval(script, &ok) == nil && ok
	}, time.Minute, 50*time.Millisecond, script)
}

// picture takes one of the whole page.
func (p *tab) picture(path string) {
	p.t.Helper()
	var out struct {
		Data string `json:"data"`
	}
	require.NoError(p.t, p.call(p.session, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &out))
	data, err := base64.StdEncoding.DecodeString(out.Data)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(path, data, 0o600))
}

// complaints are exceptions of scripts, and what the browser logs as errors: loads that the
// policy forbids or that failed.
func (b *browser) complaints() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.events {
		text, _ := json.Marshal(m.Params)
		var entry struct {
			Entry struct{ Level string } `json:"entry"`
		}
		_ = json.Unmarshal(text, &entry)
		if m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded" && entry.Entry.Level == "error" {
			all = append(all, string(text))
		}
	}
	return all
}
