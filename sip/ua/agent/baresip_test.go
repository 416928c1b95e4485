// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/wav"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

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

// telephone is bob's baresip, which is registered, answers and plays a sound.
type telephone struct {
	*program
	config peers.Baresip
	dir    string
}

func (n *net3) telephone(t *testing.T, all *peers.Peers, p plan, plays *wav.Sound) *telephone {
	t.Helper()
	b := &telephone{dir: t.TempDir(), config: peers.Baresip{
		Name: "bob", Device: "p", Listen: netip.AddrPortFrom(netip.MustParseAddr(p.peer), 5060), User: "bob", Domain: domain, Password: "bob",
		Proxy: uri(p.router) + ";transport=udp", Answer: true, Play: linear(plays),
	}}
	command, err := all.Baresip(b.dir, b.config)
	b.program = startProgram(t, n.peer, command, err)
	b.says(t, "200 OK")
	return b
}

// hears waits until the telephone has heard so many frames of a sound.
func (b *telephone) hears(t *testing.T, frames int, of *wav.Sound) {
	t.Helper()
	const head, size = 44, 2 * media.Samples
	known := map[string]bool{}
	for rest := linear(of)[head:]; rest != ""; rest = rest[size:] {
		known[rest[:size]] = true
	}
	eventually(t, "baresip hears us", func() bool {
		files, err := b.config.Heard(b.dir)
		n := 0
		for _, name := range files {
			text, more := os.ReadFile(name)
			err = errors.Join(err, more)
			for at := head; at+size <= len(text); at += size {
				if known[string(text[at:at+size])] {
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

// talk is a call of our alice with bob's telephone, in which each has heard the other.
type talk struct {
	*net3
	alice *agent.Agent
	bob   *telephone
	id    ua.CallID
	ours  *wav.Sound // what bob is to hear
	ear   *ear       // what alice hears
}

func newTalk(t *testing.T, all *peers.Peers, p plan) *talk {
	t.Helper()
	theirs := noise(2, 3000)
	k := &talk{net3: newNet3(t, p), ours: noise(1, 1000), ear: newEar(theirs)}
	k.serve(t, p)
	k.alice = k.register(t, k.mobile, p, "alice", func() (media.Source, media.Sink) { return k.ours, k.ear })
	awaitPaths(t, k.alice, p.mobileA, 2)
	k.bob = k.telephone(t, all, p, theirs)
	var err error
	if k.id, err = k.alice.Call(t.Context(), "sip:bob@"+domain); err != nil {
		t.Fatal(err)
	}
	await(t, k.alice, ua.Established)
	k.ear.more(t, 20)
	k.bob.hears(t, 20, k.ours)
	return k
}

// hangUp has alice end a call, which bob notices.
func (k *talk) hangUp(t *testing.T, id ua.CallID) {
	t.Helper()
	if err := k.alice.HangUp(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	k.bob.says(t, "session closed")
}

// TestBaresip has calls with Debian's telephone, each by the other and ended by the other, with sound
// both ways, keys, and hold by either end (RFC 3261, 3264 section 8.4, 4733).
func TestBaresip(t *testing.T) {
	t.Parallel()
	all := peerstest.Find(t)
	for _, row := range families {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			k := newTalk(t, all, row.plan)
			alice, bob := k.alice, k.bob
			if err := alice.Press(t.Context(), k.id, "5"); err != nil {
				t.Fatal(err)
			}
			bob.says(t, "received event: '5' (end=1)")
			for _, on := range []bool{true, false} {
				hold(t, alice, k.id, on)
			}
			k.ear.more(t, 20)
			bob.order(t, "/hold")
			await(t, alice, ua.Renegotiated)
			bob.order(t, "/resume")
			await(t, alice, ua.Renegotiated)
			k.ear.more(t, 20)
			bob.key(t, "7")
			if v := awaitMedia(t, alice, media.DigitEnded); v.Digit != 7 {
				t.Errorf("key %d", v.Digit)
			}
			bob.order(t, "/hangup")
			await(t, alice, ua.Ended)

			bob.order(t, "/dial sip:alice@"+domain)
			id := await(t, alice, ua.Established).Call
			k.ear.more(t, 20)
			bob.hears(t, 40, k.ours)
			k.hangUp(t, id)
			await(t, alice, ua.Ended)
		})
	}
}

// TestBaresipMovedAway has our end move during a call: the telephone takes the re-INVITE, sound goes on,
// and the BYE of either end arrives.
func TestBaresipMovedAway(t *testing.T) {
	t.Parallel()
	all := peerstest.Find(t)
	for _, row := range []struct {
		name string
		plan
		leave func(*testing.T, *net3)
		bye   func(*testing.T, *talk)
	}{
		{"softly by IPv6, and baresip hangs up", plan6, func(t *testing.T, n *net3) {
			n.mobile.Do(t, func() error { return route("b", plan6.routerB, 50) })
		}, func(t *testing.T, k *talk) { k.bob.order(t, "/hangup") }},
		{"hard by IPv4, and we hang up", plan4, func(t *testing.T, n *net3) { n.remove(t, plan4.mobileA) },
			func(t *testing.T, k *talk) { k.hangUp(t, k.id) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			k := newTalk(t, all, row.plan)
			row.leave(t, k.net3)
			await(t, k.alice, ua.Moved)
			k.ear.more(t, 20)
			k.bob.hears(t, 40, k.ours)
			row.bye(t, k)
			await(t, k.alice, ua.Ended)
		})
	}
}
