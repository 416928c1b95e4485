// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// model is a pool as a map: what is used, and what is held since when.
type model struct {
	t     *testing.T
	pool  *Pool
	s     Settings
	used  map[netip.Prefix]bool
	freed map[netip.Prefix]time.Time
	now   time.Time
}

// usable reports whether a lease of the settings may be taken by anyone.
func (m *model) usable(l netip.Prefix) bool {
	at, held := m.freed[l]
	return !m.used[l] && (!held || !m.now.Before(at.Add(m.s.Hold)))
}

// leases calls f for all that the settings have.
func (m *model) leases(f func(netip.Prefix)) {
	for _, r := range m.s.Ranges {
		for a := r.First; !r.Last.Less(a); {
			f(netip.PrefixFrom(a, m.s.Length))
			if m.s.Length == 32 {
				a = a.Next()
				continue
			}
			raw := a.As16()
			raw[7]++ // these tests have fewer than 256 of a range
			a = netip.AddrFrom16(raw)
		}
	}
}

func (m *model) has(l netip.Prefix) (found bool) {
	m.leases(func(one netip.Prefix) { found = found || one == l })
	return found
}

func (m *model) take() {
	free := 0
	m.leases(func(l netip.Prefix) {
		if m.usable(l) {
			free++
		}
	})
	l, err := m.pool.Take(m.now)
	switch {
	case err != nil && (!errors.Is(err, ErrExhausted) || free > 0):
		m.t.Fatalf("%v with %d free", err, free)
	case err == nil && (!m.has(l) || !m.usable(l)):
		m.t.Fatalf("%v is given: ours %v, used %v, freed %v, now %v", l, m.has(l), m.used[l], m.freed[l], m.now)
	case err == nil:
		m.used[l] = true
		delete(m.freed, l)
	}
}

func (m *model) exact(l netip.Prefix) {
	var want error
	if m.used[l] {
		want = ErrUsed
	}
	if !m.has(l) {
		want = ErrOutside
	}
	if err := m.pool.TakeExact(l, m.now); !errors.Is(err, want) {
		m.t.Fatalf("%v: %v, want %v", l, err, want)
	}
	if want == nil {
		m.used[l] = true
		delete(m.freed, l)
	}
}

func (m *model) free(l netip.Prefix) {
	if got := m.pool.Free(l, m.now); got != m.used[l] {
		m.t.Fatalf("%v was used: %v", l, got)
	}
	if m.used[l] {
		m.freed[l] = m.now
		delete(m.used, l)
	}
}

func (m *model) resize(first, last int) {
	for i := range m.s.Ranges {
		whole := modelRanges[m.s.Length][i]
		r := Range{whole.First, whole.Last}
		for range first % 3 {
			r.First = m.behind(r.First)
		}
		if last%2 == 1 {
			r.Last = r.First
		}
		if m.s.Length == 64 {
			r.Last = PrefixRange(netip.PrefixFrom(r.Last, 64).Masked()).Last
		}
		m.s.Ranges[i] = r
	}
	if err := m.pool.Resize(m.s); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) behind(a netip.Addr) netip.Addr {
	if m.s.Length == 32 {
		return a.Next()
	}
	return PrefixRange(netip.PrefixFrom(a, 64)).Last.Next()
}

func (m *model) check() {
	c := m.pool.Counters()
	size, taken := 0, 0
	m.leases(func(l netip.Prefix) {
		size++
		if m.pool.taken.has(uint64(must(m.pool.form.find(l)))) {
			taken++
		}
	})
	if c.Size != uint64(size) || c.Used != uint64(len(m.used)) || c.Free != uint64(size-taken) || c.Used+c.Held != c.Size-c.Free+c.Draining {
		m.t.Fatalf("%+v, want %d of %d used, %d taken", c, len(m.used), size, taken)
	}
	n := 0
	for l := range m.pool.Leases() {
		if l.Freed.IsZero() != m.used[l.Prefix] {
			m.t.Fatalf("%v", l)
		}
		n++
	}
	if n != int(c.Used+c.Held) {
		m.t.Fatalf("%d leases are listed of %+v", n, c)
	}
}

func must(n uint64, ok bool) uint64 {
	if !ok {
		panic("a lease of the model has no number")
	}
	return n
}

var modelRanges = map[int][]Range{
	32: {PrefixRange(netip.MustParsePrefix("192.0.2.0/28")), PrefixRange(netip.MustParsePrefix("192.0.2.64/27"))},
	64: {PrefixRange(netip.MustParsePrefix("2001:db8::/60")), PrefixRange(netip.MustParsePrefix("2001:db8:1::/59"))},
}

// run does what the octets say with a pool and its model.
func run(t *testing.T, input []byte) {
	if len(input) < 3 {
		return
	}
	m := &model{t: t, used: map[netip.Prefix]bool{}, freed: map[netip.Prefix]time.Time{}, now: start}
	m.s = Settings{Length: 32 + 32*int(input[0]%2), Hold: time.Duration(input[1]) * time.Second}
	m.s.Ranges = append(m.s.Ranges, modelRanges[m.s.Length]...)
	var err error
	if m.pool, err = New(m.s, uint64(input[2])); err != nil {
		t.Fatal(err)
	}
	var all []netip.Prefix
	m.leases(func(l netip.Prefix) { all = append(all, l) })
	for input = input[3:]; len(input) >= 2; input = input[2:] {
		l := all[int(input[1])%len(all)]
		switch input[0] % 16 {
		case 0, 1, 2, 3, 4, 5:
			m.take()
		case 6, 7, 8, 9, 10:
			m.free(l)
		case 11, 12:
			m.exact(l)
		case 13, 14:
			m.now = m.now.Add(time.Duration(input[1]) * time.Second / 8)
		default:
			m.resize(int(input[1]), int(input[1]>>4))
		}
		m.check()
	}
}

func TestPoolAgreesWithModel(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	for range 60 {
		input := make([]byte, 600)
		_, _ = random.Read(input) // it never fails
		run(t, input)
	}
}

func FuzzPool(f *testing.F) {
	f.Add([]byte{0, 60, 7, 0, 0, 6, 0, 0, 0, 13, 255, 15, 33, 11, 3})
	f.Fuzz(func(t *testing.T, input []byte) { run(t, input[:min(len(input), 400)]) })
}

// TestNumbersAgreeWithMap compares the set of numbers with a map, about the ends of words
// of each level.
func TestNumbersAgreeWithMap(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 3))
	for _, base := range []uint64{0, 1<<12 - 40, 1<<18 - 100, 1<<32 - 64, ^uint64(0) - 400} {
		var set numbers
		model := map[uint64]bool{}
		for i := range 6000 {
			n := base + random.Uint64N(300)
			switch {
			case i < 3000 || random.IntN(3) > 0:
				set.add(n)
				model[n] = true
			case model[n]:
				set.remove(n)
				delete(model, n)
			}
			in := span{n, n + random.Uint64N(100)}
			want, found := in.first, false
			for ; want <= in.last; want++ {
				if found = !model[want]; found {
					break
				}
			}
			if got, ok := set.free(in); ok != found || ok && got != want || set.has(n) != model[n] {
				t.Fatalf("free in %+v is %d, %v, want %d, %v", in, got, ok, want, found)
			}
		}
		for n := range model {
			set.remove(n)
		}
		for k := range set.levels {
			if len(set.levels[k]) > 0 {
				t.Errorf("%d words of level %d are left", len(set.levels[k]), k)
			}
		}
	}
}
