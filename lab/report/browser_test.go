// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// The browser that scripts/peers fetches for these tests: its folder, and the
// program there.
const (
	browserFolder  = "../../.cache/browser"
	browserProgram = "bin/chromium-headless-shell"
)

// browserLimit is how long the browser may take for one answer.
const browserLimit = 30 * time.Second

// browser is a browser without a screen, told what to do through a pair of
// pipes in the words of the Chrome DevTools Protocol: messages of JSON that end
// in a zero byte.
type browser struct {
	t       *testing.T
	write   io.Writer
	answers chan message
	events  chan message
	session string
	last    int
}

// message is an answer, with the number of its question, or an event.
type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// findBrowser returns the browser in a folder that scripts/peers filled.
func findBrowser(t testing.TB, folder string) string {
	path := filepath.Join(folder, browserProgram)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if _, err := os.Stat(filepath.Join(folder, "stamp")); err == nil {
		t.Skip("no browser here to look at pages with: this release carries none") // as set-up said
		return ""
	}
	testutil.Missing(t, errors.New("no browser here to look at pages with: run 'scripts/peers browser'"))
	return ""
}

// openBrowser starts a browser with one empty page; it ends with the test.
func openBrowser(t *testing.T) *browser {
	path, err := filepath.Abs(findBrowser(t, browserFolder))
	if err != nil {
		t.Fatal(err)
	}
	theirRead, ourWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourRead, theirWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	// Files of the test alone are shown, and no one can do without a sandbox
	// what he could not before: the browser runs as whoever runs the test.
	// The other flags keep it from reaching for a network.
	cmd := exec.Command(path, "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir="+home, "--remote-debugging-pipe")
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.ExtraFiles = []*os.File{theirRead, theirWrite} // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirRead.Close()
	theirWrite.Close()
	t.Cleanup(func() {
		ourWrite.Close() // upon which it ends by itself
		over := time.AfterFunc(browserLimit, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		over.Stop()
		ourRead.Close()
	})
	b := &browser{t: t, write: ourWrite, answers: make(chan message), events: make(chan message, 1000)}
	go b.read(ourRead)
	b.attach()
	return b
}

// read sorts what the browser says until it is gone.
func (b *browser) read(from io.Reader) {
	defer close(b.answers)
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			return
		}
		if m.ID != 0 {
			b.answers <- m
			continue
		}
		select {
		case b.events <- m:
		default: // no one waits for so many
		}
	}
}

// call asks for something and decodes the answer into result unless it is nil.
func (b *browser) call(method string, parameters, result any) {
	b.t.Helper()
	b.last++
	question := map[string]any{"id": b.last, "method": method, "params": parameters}
	if b.session != "" {
		question["sessionId"] = b.session
	}
	text, err := json.Marshal(question)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.write.Write(append(text, 0)); err != nil {
		b.t.Fatalf("the browser is gone: %v", err)
	}
	select {
	case m, ok := <-b.answers:
		if !ok {
			b.t.Fatalf("the browser ended upon %s", method)
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(browserLimit):
		b.t.Fatalf("the browser does not answer %s", method)
	}
}

// none are no parameters.
type none struct{}

// attach opens a page and makes it the one that is talked to.
func (b *browser) attach() {
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]string{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Page.enable", none{}, nil)
	// A page that reaches for a network would show nothing of it here.
	b.call("Network.enable", none{}, nil)
	b.call("Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}, nil)
}

// show loads a file as a screen of that width and taste ("light" or "dark").
func (b *browser) show(file string, width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	var loaded struct{ ErrorText string }
	b.call("Page.navigate", map[string]string{"url": "file://" + file}, &loaded)
	if loaded.ErrorText != "" {
		b.t.Fatalf("%s cannot be shown: %s", file, loaded.ErrorText)
	}
	limit := time.After(browserLimit)
	for {
		select {
		case m := <-b.events:
			if m.Method == "Page.loadEventFired" {
				return
			}
		case <-limit:
			b.t.Fatalf("%s does not finish loading", file)
		}
	}
}

// evaluate runs a script in the page and decodes what it returns.
func (b *browser) evaluate(script string, result any) {
	b.t.Helper()
	var answer struct {
		Result struct {
			Value json.RawMessage
		}
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "awaitPromise": true}, &answer)
	if e := answer.ExceptionDetails; e != nil {
		b.t.Fatalf("the script failed: %s", e.Exception.Description)
	}
	if err := json.Unmarshal(answer.Result.Value, result); err != nil {
		b.t.Fatalf("the script returned %s: %v", answer.Result.Value, err)
	}
}

// picture writes the whole page as an image into the folder that
// ISTHMUS_PICTURES names, for a person to look at.
func (b *browser) picture(name string) {
	dir := os.Getenv("ISTHMUS_PICTURES")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	image, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.png", name)), image, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
