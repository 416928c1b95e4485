// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// sharedEngine is an engine under test that shares its contexts with programs. Behind each call it checks that records
// and index say of contexts what is so now, and then has all contexts entered that may be.
type sharedEngine struct {
	*Engine
	t     testing.TB // nil: nothing is shared
	index *testIndex
	calls int
	lazy  bool // contexts are entered by their packets alone
}

// The memory that tests share has room for so much.
const (
	testContexts   = 1024
	testAggregates = 256
)

func newShared(t testing.TB) *Shared {
	return &Shared{Contexts: make([]SharedContext, testContexts), Aggregates: make([]SharedAggregate, testAggregates), Index: newTestIndex(t)}
}

// share has an engine under test share its contexts; those of benchmarks do not.
func share(t testing.TB, e *Engine) *sharedEngine {
	if _, measured := t.(*testing.B); measured {
		return &sharedEngine{Engine: e}
	}
	s := &sharedEngine{Engine: e, t: t}
	s.shareBy(newShared(t))
	return s
}

func (s *sharedEngine) shareBy(m *Shared) {
	s.index = nil
	if m != nil {
		s.index = m.Index.(*testIndex)
	}
	s.Engine.Share(m)
	s.enterAll()
}

// called checks what a call has left. Where there are many contexts, that is done once in a while.
func (s *sharedEngine) called() {
	if s.t == nil {
		return
	}
	s.calls++
	if n := int(s.contexts.last); n > 64 && s.calls%(n/16) != 0 {
		return
	}
	s.t.Helper()
	s.checkShared()
	s.enterAll()
}

func (s *sharedEngine) enterAll() {
	for h := handle(1); h <= s.contexts.last && !s.lazy && s.shared != nil; h++ {
		if s.contexts.at(h).session != 0 {
			s.enter(h, call{at: s.at})
		}
	}
}

func (s *sharedEngine) checkShared() {
	s.t.Helper()
	if s.shared == nil {
		return
	}
	entered, open := 0, make(map[handle]int)
	for h := handle(1); h <= s.contexts.last; h++ {
		entered += s.checkContext(h, open)
	}
	for h := handle(1); h <= s.aggregates.last; h++ {
		s.checkAggregate(h, open[h])
	}
	if n := s.index.size(); n != entered {
		s.t.Errorf("the index has %d records, of %d contexts that were entered", n, entered)
	}
	s.index.check(s.shared)
}

// checkContext checks the record of a context, and returns how many it has in the index.
func (s *sharedEngine) checkContext(h handle, open map[handle]int) int {
	s.t.Helper()
	u := s.contexts.at(h)
	if int(h) >= len(s.shared.Contexts) {
		if u.sharing != sharingNone {
			s.t.Errorf("context %d has no record and is shared", h)
		}
		return 0
	}
	r := &s.shared.Contexts[h]
	if odd := r.State&1 != 0; odd != (u.sharing == sharingOpen) {
		s.t.Errorf("context %d has state %d and is shared as %d", h, r.State, u.sharing)
	}
	if u.sharing >= sharingEntered {
		s.checkKeys(h, r)
	}
	if r.State&1 == 0 {
		return min(1, int(u.sharing/sharingEntered))
	}
	if u.session == 0 {
		s.t.Errorf("record %d is that of a context that has ended", h)
		return 1
	}
	want, ok := s.sharedOf(h)
	if !ok {
		s.t.Errorf("context %d has an open record and may not be shared", h)
	}
	if has := described(r); has != described(&want) {
		s.t.Errorf("the record of context %d is\n%+v, want\n%+v", h, has, described(&want))
	}
	if r.Aggregate != 0 {
		open[handle(r.Aggregate)]++
	}
	return 1
}

// checkKeys wants a context that was entered to be found by the keys that it has now.
func (s *sharedEngine) checkKeys(h handle, r *SharedContext) {
	s.t.Helper()
	u := s.contexts.at(h)
	of := s.sessions.at(u.session)
	n, has := uint32(h), of.has
	if of.version != gtp.V1 || s.index.teids[wire32(u.teid)] != n ||
		has.has(TypeIPv4) && s.index.fours[wire32(of.address)] != n || has.has(TypeIPv6) && s.index.sixes[wire64(of.prefix)] != n {
		s.t.Errorf("context %d is entered by other keys than it has", h)
	}
}

// described is what a record says of its context, without what programs change.
func described(r *SharedContext) SharedContext {
	return SharedContext{
		TEID: r.TEID, Node: r.Node, NodeTEID: r.NodeTEID, Address: r.Address, Flags: r.Flags, Prefix: r.Prefix,
		MTU: r.MTU, Class: r.Class, Aggregate: r.Aggregate, Left: r.Left,
		Up: SharedWay{Rate: SharedRate{Cost: r.Up.Rate.Cost}}, Down: SharedWay{Rate: SharedRate{Cost: r.Down.Rate.Cost}},
	}
}

func (s *sharedEngine) checkAggregate(h handle, open int) {
	s.t.Helper()
	g := s.aggregates.at(h)
	if g.shared != open {
		s.t.Errorf("rates %d are named by %d records, and count %d", h, open, g.shared)
	}
	if open == 0 {
		return
	}
	if r := &s.shared.Aggregates[h]; r.Up.Cost != g.up.Cost || r.Down.Cost != g.down.Cost {
		s.t.Errorf("rates %d are shared with costs %d and %d, want %d and %d", h, r.Up.Cost, r.Down.Cost, g.up.Cost, g.down.Cost)
	}
}

// testIndex is an index that knows what belongs into it.
type testIndex struct {
	testing.TB
	sync.Mutex
	teids map[uint32]uint32
	fours map[uint32]uint32
	sixes map[uint64]uint32
	room  int // records that it has room for
	calls int
}

func newTestIndex(t testing.TB) *testIndex {
	return &testIndex{TB: t, teids: map[uint32]uint32{}, fours: map[uint32]uint32{}, sixes: map[uint64]uint32{}, room: testContexts}
}

func (x *testIndex) size() int { return len(x.teids) }

func (x *testIndex) Enter(number uint32, c *SharedContext) bool {
	x.Helper()
	x.Lock()
	defer x.Unlock()
	x.calls++
	if len(x.teids) >= x.room {
		return false
	}
	enterKey(x, x.teids, c.TEID, number)
	if c.Flags&SharedIPv4 != 0 {
		enterKey(x, x.fours, c.Address, number)
	}
	if c.Flags&SharedIPv6 != 0 {
		enterKey(x, x.sixes, c.Prefix, number)
	}
	return true
}

func (x *testIndex) Leave(number uint32, c *SharedContext) {
	x.Helper()
	x.Lock()
	defer x.Unlock()
	x.calls++
	leaveKey(x, x.teids, c.TEID, number)
	if c.Flags&SharedIPv4 != 0 {
		leaveKey(x, x.fours, c.Address, number)
	}
	if c.Flags&SharedIPv6 != 0 {
		leaveKey(x, x.sixes, c.Prefix, number)
	}
}

func enterKey[K comparable](t testing.TB, m map[K]uint32, k K, number uint32) {
	t.Helper()
	if n, taken := m[k]; taken {
		t.Errorf("record %d is entered by %v, which leads to record %d", number, k, n)
	}
	m[k] = number
}

func leaveKey[K comparable](t testing.TB, m map[K]uint32, k K, number uint32) {
	t.Helper()
	if m[k] != number {
		t.Errorf("record %d leaves %v, which leads to record %d", number, k, m[k])
	}
	delete(m, k)
}

// check wants each entry to lead to a record that has its key, if that may be used.
func (x *testIndex) check(m *Shared) {
	x.Helper()
	wrong := func(n uint32, has bool) bool { return m.Contexts[n].State&1 != 0 && !has }
	for k, n := range x.teids {
		if wrong(n, m.Contexts[n].TEID == k) {
			x.Errorf("TEID %#x leads to record %d", k, n)
		}
	}
	for k, n := range x.fours {
		if wrong(n, m.Contexts[n].Address == k) {
			x.Errorf("address %#x leads to record %d", k, n)
		}
	}
	for k, n := range x.sixes {
		if wrong(n, m.Contexts[n].Prefix == k) {
			x.Errorf("prefix %#x leads to record %d", k, n)
		}
	}
}

// The calls of an engine.

func (s *sharedEngine) HandleUDP(socket Socket, from netip.AddrPort, class uint8, b []byte, now time.Time, out *Output) {
	s.Engine.HandleUDP(socket, from, class, b, now, out)
	s.called()
}

func (s *sharedEngine) HandleIP(vrf uint8, ip []byte, now time.Time, out *Output) {
	s.Engine.HandleIP(vrf, ip, now, out)
	s.called()
}

func (s *sharedEngine) Tick(now time.Time, out *Output) {
	s.Engine.Tick(now, out)
	s.called()
}

func (s *sharedEngine) Reconfigure(to Settings, now time.Time, out *Output) error {
	err := s.Engine.Reconfigure(to, now, out)
	s.called()
	return err
}

func (s *sharedEngine) Authorize(ticket uint64, g Grant, now time.Time, out *Output) {
	s.Engine.Authorize(ticket, g, now, out)
	s.called()
}

func (s *sharedEngine) Delete(sel Selection, now time.Time, out *Output) int {
	defer s.called()
	return s.Engine.Delete(sel, now, out)
}

func (s *sharedEngine) DeleteNamed(refs []Ref, now time.Time, out *Output) int {
	defer s.called()
	return s.Engine.DeleteNamed(refs, now, out)
}

func (s *sharedEngine) Disconnect(refs []Ref, class [][]byte, now time.Time, out *Output) error {
	defer s.called()
	return s.Engine.Disconnect(refs, class, now, out)
}

func (s *sharedEngine) Amend(refs []Ref, to *Amendment, now time.Time, out *Output) error {
	defer s.called()
	return s.Engine.Amend(refs, to, now, out)
}

func (s *sharedEngine) SetQoS(sel Selection, q gtp.QoS, now time.Time, out *Output) int {
	defer s.called()
	return s.Engine.SetQoS(sel, q, now, out)
}

func (s *sharedEngine) CloseRecords(refs []Ref, now time.Time, out *Output) int {
	defer s.called()
	return s.Engine.CloseRecords(refs, now, out)
}

func (s *sharedEngine) Close(now time.Time, out *Output) {
	s.Engine.Close(now, out)
	s.called()
}

func (s *sharedEngine) Drain(rate int, now time.Time, out *Output) {
	s.Engine.Drain(rate, now, out)
	s.called()
}

func (s *sharedEngine) Settle(now time.Time, out *Output) {
	s.Engine.Settle(now, out)
	s.called()
}

func (s *sharedEngine) Contexts(sel Selection, from uint32, n int, f func(ContextInfo) bool) uint32 {
	defer s.called()
	return s.Engine.Contexts(sel, from, n, f)
}

func (s *sharedEngine) AppendState(b []byte) []byte {
	defer s.called()
	return s.Engine.AppendState(b)
}

// TestSharedEngineChecksEachCall fails where a call that may change contexts is not one that is checked.
func TestSharedEngineChecksEachCall(t *testing.T) {
	of := reflect.TypeFor[*sharedEngine]()
	checked := 0
	for i := range of.NumMethod() {
		m := of.Method(i)
		changes := false
		for n := range m.Type.NumIn() {
			changes = changes || m.Type.In(n) == reflect.TypeFor[*Output]()
		}
		if !changes {
			continue
		}
		file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer())
		if strings.Contains(file, "autogenerated") {
			t.Errorf("%s is not checked", m.Name)
		}
		checked++
	}
	if checked < 10 {
		t.Errorf("%d calls were found", checked)
	}
}

// resume is [Resume] for an engine that shares its contexts.
func resume(t testing.TB, s Settings, state []byte, now time.Time, random io.Reader) (*sharedEngine, int, error) {
	e, lost, err := Resume(s, state, now, random)
	if err != nil {
		return nil, lost, fmt.Errorf("resume: %w", err)
	}
	return share(t, e), lost, nil
}
