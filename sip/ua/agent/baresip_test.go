// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
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
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/wav"
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
	proxy, err := message.ParseURI(uri(p.router))
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
	eventually(t, "it says "+text, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		at := strings.Index(p.text.String()[p.read:], text)
		if at >= 0 {
			p.read += at + len(text)
		}
		return at >= 0
	})
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
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// noise is a sound whose frames differ from each other, and survive being decoded and encoded. It
// has no sample of 0, which baresip decodes as 2.
func noise(seed uint64, frames int) *wav.Sound {
	random := rand.New(rand.NewPCG(seed, 0))
	s := &wav.Sound{Format: wav.MuLaw, Data: make([]byte, frames*media.Samples)}
	for i := range s.Data {
		s.Data[i] = byte(random.UintN(2)<<7 | random.UintN(127))
	}
	return s
}

// linear is a sound as a file of 16 bits.
func linear(s *wav.Sound) string {
	var b []byte
	for i := range s.Len() {
		v := s.Sample(i)
		b = append(b, byte(v), byte(v>>8))
	}
	return string(wav.Append(nil, wav.Linear, b))
}

// ear counts the frames of a sound that it hears.
type ear struct {
	mu    sync.Mutex
	known map[string]bool
	heard int
}

func newEar(s *wav.Sound) *ear {
	e := &ear{known: map[string]bool{}}
	for at := 0; at < len(s.Data); at += media.Samples {
		e.known[string(s.Data[at:at+media.Samples])] = true
	}
	return e
}

// Write implements [media.Sink].
func (e *ear) Write(_ int64, _ g711.Law, b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known[string(b)] {
		e.heard++
	}
}

// more waits for frames, from now on.
func (e *ear) more(t *testing.T, frames int) {
	t.Helper()
	count := func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.heard
	}
	want := count() + frames
	eventually(t, "the peer's sound is heard", func() bool { return count() >= want })
}

// hears waits until a telephone with its files below dir has heard so many frames of a sound.
func hears(t *testing.T, c peers.Baresip, dir string, frames int, of *wav.Sound) {
	t.Helper()
	const head, size = 44, 2 * media.Samples
	known := map[string]bool{}
	for rest := linear(of)[head:]; rest != ""; rest = rest[size:] {
		known[rest[:size]] = true
	}
	eventually(t, "baresip hears us", func() bool {
		files, err := c.Heard(dir)
		n := 0
		for _, name := range files {
			b, more := os.ReadFile(name)
			err = errors.Join(err, more)
			for at := head; at+size <= len(b); at += size {
				if known[string(b[at:at+size])] {
					n++
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return n >= frames
	})
}

// families are the rows of tests by both versions of IP.
var families = []struct {
	name string
	plan
}{{"by IPv6", plan6}, {"by IPv4", plan4}}

// TestBaresip has calls with Debian's telephone, each by the other and ended by the other, with sound
// both ways, keys, and hold by either end (RFC 3261, 3264 section 8.4, 4733).
func TestBaresip(t *testing.T) {
	all := peerstest.Find(t)
	for _, row := range families {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNet3(t, row.plan)
			n.serve(t, row.plan)
			ours, theirs := noise(1, 1000), noise(2, 3000)
			ear := newEar(theirs)
			alice := n.register(t, n.mobile, row.plan, "alice", func() (media.Source, media.Sink) { return ours, ear })
			config := peers.Baresip{
				Name: "bob", Device: "p", Listen: netip.AddrPortFrom(netip.MustParseAddr(row.peer), 5060), User: "bob", Domain: domain, Password: "bob",
				Proxy: uri(row.router) + ";transport=udp", Answer: true, Play: linear(theirs),
			}
			dir := t.TempDir()
			command, err := all.Baresip(dir, config)
			bob := startProgram(t, n.peer, command, err)
			bob.says(t, "200 OK")

			id, err := alice.Call(t.Context(), "sip:bob@"+domain)
			if err != nil {
				t.Fatal(err)
			}
			await(t, alice, ua.Established)
			ear.more(t, 20)
			hears(t, config, dir, 20, ours)
			if err := alice.Press(t.Context(), id, "5"); err != nil {
				t.Fatal(err)
			}
			bob.says(t, "received event: '5' (end=1)")
			for _, on := range []bool{true, false} {
				if err := alice.Hold(t.Context(), id, on); err != nil {
					t.Fatal(err)
				}
				if on {
					await(t, alice, ua.Held)
				} else {
					await(t, alice, ua.Resumed)
				}
			}
			ear.more(t, 20)
			bob.order(t, "/hold")
			await(t, alice, ua.Renegotiated)
			bob.order(t, "/resume")
			await(t, alice, ua.Renegotiated)
			ear.more(t, 20)
			bob.key(t, "7")
			awaitMedia(t, alice, media.DigitEnded)
			bob.order(t, "/hangup")
			await(t, alice, ua.Ended)

			bob.order(t, "/dial sip:alice@"+domain)
			id = await(t, alice, ua.Established).Call
			ear.more(t, 20)
			hears(t, config, dir, 40, ours)
			if err := alice.HangUp(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			await(t, alice, ua.Ended)
			bob.says(t, "session closed")
		})
	}
}

// awaitMedia returns the next event of a kind about media.
func awaitMedia(t *testing.T, a *agent.Agent, k media.EventKind) media.Event {
	t.Helper()
	timeout := time.After(20 * time.Second)
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
