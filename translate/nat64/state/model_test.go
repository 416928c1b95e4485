// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"math/rand/v2"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// model is what a table should hold, in plain maps.
type model struct {
	table    *Table
	memory   Memory
	sizes    Sizes
	outside  map[Inside]Outside
	static   map[Inside]bool
	sessions map[Key6]Status
	random   *rand.Rand
}

func newModel(t testing.TB, seed uint64) *model {
	m := &model{
		sizes:   Sizes{Sessions: 96, Subscribers: 3, Addresses: 4, BlockWords: 1, SubscriberLength: 64},
		outside: make(map[Inside]Outside), static: make(map[Inside]bool), sessions: make(map[Key6]Status),
		random: rand.New(rand.NewPCG(seed, 1)),
	}
	m.table, m.memory = open(t, m.sizes)
	return m
}

// step does one operation that three bytes choose.
func (m *model) step(t testing.TB, op, what, which byte) {
	in := Inside{client(uint32(what%4), uint32(what/4%4)), 2000 + uint16(what/16%4), Transport(which % 3)}
	peer := [4]byte{198, 51, 100, which / 3 % 4}
	switch op % 16 {
	default:
		m.flow(t, in, peer, which/12%2)
	case 8:
		m.endSession(t, in, peer)
	case 9:
		m.changeSession(t, in, peer, which)
	case 10:
		m.endBinding(t, in)
	case 11:
		m.makeStatic(t, in, Outside{next4, 2000 + uint16(which%8), in.Transport})
	case 12:
		m.endSubscriber(t, in.Client)
	case 13:
		m.table = reopen(t, m.sizes, m.memory)
		m.forgetBare()
	case 14:
		if err := m.table.SetPool([]PoolAddress{ports(first4, 1024, 1024+uint16(what)*64), ports(next4, 1, 65535)}); err != nil {
			t.Error(err)
		}
	}
}

// flow makes a session as an engine does.
func (m *model) flow(t testing.TB, in Inside, peer [4]byte, prefix byte) {
	var c Subscriber
	pool := [...][4]byte{first4, next4}[in.Client[7]%2]
	if m.table.MakeSubscriber(&in.Client, pool, 20, &c) == TableFull {
		return
	}
	b, known := m.bind(t, &c, in)
	if !known {
		return
	}
	k := Key6{in.Client, peer, in.Port, 9, in.Transport, prefix}
	other := k
	other.Prefix ^= 1
	want := Made
	if _, ok := m.sessions[k]; ok {
		want = Found
	} else if _, ok := m.sessions[other]; ok {
		want = OtherPrefix
	}
	var s Session
	got := m.table.NewSession(&b, Fresh{Peer: peer, PeerPort: 9, Prefix: prefix, Status: Opened}, &s)
	switch {
	case got == SessionLimit && want == Made && m.count(b.Subscriber) >= 20:
	case got == TableFull && want == Made && len(m.sessions) == m.sizes.Sessions:
	case got != want:
		t.Errorf("session %v: %s, want %s", k, got, want)
	case got == Made:
		m.sessions[k] = Opened
	}
}

// bind finds or makes a binding.
func (m *model) bind(t testing.TB, c *Subscriber, in Inside) (b Binding, ok bool) {
	o := m.table.NewBinding(c, in, Wish{Port: in.Port, Parity: true}, m.random.Uint64(), &b)
	if o == NoPort {
		var block Block
		if m.table.Lease(c, in.Transport, 3, m.random.Uint64(), &block) != Made {
			return b, false
		}
		o = m.table.NewBinding(c, in, Wish{Port: in.Port, Parity: true}, m.random.Uint64(), &b)
	}
	out, known := m.outside[in]
	switch {
	case o == TableFull && !known && len(m.outside) == m.sizes.Sessions:
		return b, false
	case o == Made && known, o == Found && !known, !o.OK():
		t.Errorf("binding %v: %s; known %v", in, o, known)
	case o == Found && b.Outside() != out:
		t.Errorf("binding %v to %v, want %v", in, b.Outside(), out)
	}
	m.outside[in] = b.Outside()
	return b, true
}

// count counts the sessions of a client's bindings.
func (m *model) count(subscriber uint32) (n int) {
	if subscriber == 0 {
		return 0
	}
	for k := range m.sessions {
		in := k.Inside()
		var b Binding
		if m.table.FindBinding6(&in, &b) && b.Subscriber == subscriber {
			n++
		}
	}
	return n
}

func (m *model) endSession(t testing.TB, in Inside, peer [4]byte) {
	for prefix := range uint8(2) {
		k := Key6{in.Client, peer, in.Port, 9, in.Transport, prefix}
		var s Session
		_, want := m.sessions[k]
		if got := m.table.Find6(&k, &s); got != want {
			t.Fatalf("session %v: found %v, want %v", k, got, want)
		}
		if !want {
			continue
		}
		if o := m.table.End(&s); o != Made {
			t.Errorf("End of %v: %s", k, o)
		}
		delete(m.sessions, k)
		m.forgetIfBare(in)
	}
}

// forgetIfBare forgets a dynamic binding without sessions.
func (m *model) forgetIfBare(in Inside) {
	for k := range m.sessions {
		if k.Inside() == in {
			return
		}
	}
	if !m.static[in] {
		delete(m.outside, in)
	}
}

func (m *model) forgetBare() {
	for in := range m.outside {
		m.forgetIfBare(in)
	}
}

func (m *model) changeSession(t testing.TB, in Inside, peer [4]byte, which byte) {
	k := Key6{in.Client, peer, in.Port, 9, in.Transport, which / 12 % 2}
	var s Session
	if !m.table.Find6(&k, &s) {
		return
	}
	if s.Word.Status() != m.sessions[k] {
		t.Errorf("session %v: %s, want %s", k, s.Word.Status(), m.sessions[k])
	}
	status := Status(1 + which%8)
	if !m.table.Step(&s, status, 0, uint32(which)) {
		t.Errorf("Step of %v failed", k)
	}
	m.sessions[k] = status
}

func (m *model) endBinding(t testing.TB, in Inside) {
	var b Binding
	_, want := m.outside[in]
	if got := m.table.FindBinding6(&in, &b); got != want {
		t.Fatalf("binding %v: found %v, want %v", in, got, want)
	}
	if !want {
		return
	}
	if o := m.table.EndBinding(&b); o != Made {
		t.Errorf("EndBinding of %v: %s", in, o)
	}
	delete(m.outside, in)
	delete(m.static, in)
	for k := range m.sessions {
		if k.Inside() == in {
			delete(m.sessions, k)
		}
	}
}

func (m *model) makeStatic(t testing.TB, in Inside, out Outside) {
	var b Binding
	known, bound := m.outside[in]
	want := Made
	switch {
	case bound && known != out:
		want = Taken
	case bound && m.static[in]:
		want = Found
	case !bound:
		for _, other := range m.outside {
			if other == out {
				want = Taken
			}
		}
	}
	got := m.table.NewStatic(in, out, &b)
	if got == TableFull && len(m.outside) == m.sizes.Sessions {
		return
	}
	if got != want {
		t.Errorf("static %v to %v: %s, want %s", in, out, got, want)
	}
	if got == Made {
		m.outside[in], m.static[in] = out, true
	}
}

func (m *model) endSubscriber(t testing.TB, address [16]byte) {
	var c Subscriber
	if !m.table.FindSubscriber(&address, &c) {
		return
	}
	want := Made
	if c.Bindings != 0 {
		want = Found
	}
	if got := m.table.EndSubscriber(&c); got != want {
		t.Errorf("EndSubscriber: %s, want %s", got, want)
	}
}

// check compares all of it.
func (m *model) check(t testing.TB) {
	t.Helper()
	m.table.check(t)
	bindings := 0
	m.table.WalkBindings(0, m.sizes.Sessions, func(b *Binding) {
		bindings++
		if out, ok := m.outside[b.Inside()]; !ok || out != b.Outside() || m.static[b.Inside()] != b.Static {
			t.Errorf("binding %+v, want %v", b, out)
		}
	})
	if bindings != len(m.outside) {
		t.Errorf("%d bindings, want %d", bindings, len(m.outside))
	}
	sessions := 0
	m.table.WalkSessions(0, m.sizes.Sessions, func(s *Session) {
		sessions++
		k, k4 := s.Key6(), s.Key4()
		if status, ok := m.sessions[k]; !ok || status != s.Word.Status() || m.outside[k.Inside()] != k4.Outside() {
			t.Errorf("session %+v, want %s", s, status)
		}
	})
	if sessions != len(m.sessions) {
		t.Errorf("%d sessions, want %d", sessions, len(m.sessions))
	}
}

// TestModel does random things to a table that is often full.
func TestModel(t *testing.T) {
	testutil.OneThread(t)
	for seed := range uint64(8) {
		m := newModel(t, seed)
		for i := range 4000 {
			m.step(t, byte(m.random.Uint32()), byte(m.random.Uint32()), byte(m.random.Uint32()))
			if i%50 == 0 {
				m.check(t)
			}
			if t.Failed() {
				t.Fatalf("seed %d, operation %d", seed, i)
			}
		}
		m.check(t)
	}
}

// FuzzTable lets the fuzzer choose what is done.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 0, 0, 8, 0, 0})
	f.Add([]byte{0, 1, 2, 11, 1, 2, 13, 0, 0, 10, 1, 2, 12, 1, 0, 14, 0, 0, 0, 1, 2})
	f.Fuzz(func(t *testing.T, ops []byte) {
		m := newModel(t, 0)
		for ops = ops[:min(len(ops), 900)]; len(ops) >= 3; ops = ops[3:] {
			m.step(t, ops[0], ops[1], ops[2])
		}
		m.check(t)
	})
}
