// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar/registrarrole"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// domain is that of the registrar on the router, whose users are alice and bob; passwords are names.
const domain = "example.net"

// serve runs the registrar on the router.
func (n *net3) serve(t *testing.T, p plan) {
	t.Helper()
	dir := t.TempDir()
	users := filepath.Join(dir, "subscribers.toml")
	text := ""
	for _, name := range []string{"alice", "bob"} {
		text += fmt.Sprintf("[[subscriber]]\nprivate_id = %q\npublic_ids = [\"sip:%s@%s\"]\npassword = %q\n", name, name, domain, name)
	}
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	text = fmt.Sprintf("[[registrar]]\ndomains = [%q]\nlisten = [%q]\nlisten_tls = []\nalgorithms = [\"MD5\"]\nsubscribers_file = %q\nstate_file = %q\n",
		domain, p.router, users, filepath.Join(dir, "state"))
	r, err := registrarrole.New(*configtest.One(t, registrarrole.Role.Section, text).(*registrarrole.Settings), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, n.router, r)
}

// uri is that of an address.
func uri(at string) string {
	if strings.Contains(at, ":") {
		at = "[" + at + "]"
	}
	return "sip:" + at
}

// register runs an agent that registers by the router's registrar.
func (n *net3) register(t *testing.T, in *testutil.Netns, p plan, name string, sound func() (media.Source, media.Sink)) *agent.Agent {
	t.Helper()
	return n.registerBy(t, in, uri(p.router), name, sound)
}

// registerBy runs one that registers by a proxy.
func (n *net3) registerBy(t *testing.T, in *testutil.Netns, by, name string, sound func() (media.Source, media.Sink)) *agent.Agent {
	t.Helper()
	proxy, err := message.ParseURI(by)
	if err != nil {
		t.Fatal(err)
	}
	var a *agent.Agent
	in.Do(t, func() (err error) {
		a, err = agent.New(agent.Settings{
			UA: ua.Settings{
				AOR: message.URI{Scheme: "sip", User: name, Host: domain}, Password: name,
				Proxy: proxy, Register: time.Hour,
			},
			AutoAnswer: true, Latch: true, Sound: sound,
		})
		return err
	})
	run(t, a)
	await(t, a, ua.Registered)
	return a
}

// program is a peer that runs.
type program struct {
	*exec.Cmd
	in io.Writer

	mu   sync.Mutex
	text strings.Builder
	read int
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// startProgram starts a peer in a namespace.
func startProgram(t *testing.T, in *testutil.Netns, c *peers.Command, err error) *program {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: exec.Command(c.Path, c.Args...)}
	p.Env = append(os.Environ(), c.Env...)
	p.Stdout, p.Stderr = p, p
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	in.Do(t, p.Start)
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			t.Logf("%s", p.text.String())
		}
	})
	return p
}

// says waits until the peer says something, behind what it has said before.
func (p *program) says(t *testing.T, text string) {
	t.Helper()
	eventually(t, "it says "+text, func() bool { return p.said(text) })
}

// said reports whether the peer has said something, behind what it had said before.
func (p *program) said(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := strings.Index(p.text.String()[p.read:], text)
	if at >= 0 {
		p.read += at + len(text)
	}
	return at >= 0
}

// order gives the peer an order.
func (p *program) order(t *testing.T, line string) { p.key(t, line+"\n") }

func (p *program) key(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(p.in, keys); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// awaitMedia returns the next event of a kind about media.
func awaitMedia(t *testing.T, a *agent.Agent, k media.EventKind) media.Event {
	t.Helper()
	timeout := time.After(testutil.Patience)
	for {
		select {
		case v := <-a.Events():
			if v.Media != nil && v.Media.Kind == k {
				return *v.Media
			}
		case <-timeout:
			t.Fatalf("no event %v", k)
		}
	}
}
