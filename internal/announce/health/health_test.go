// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package health

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// run plays a script, one step a second: "+" is a good check, "-" a failed one,
// "d" a drain, "u" its end, "." only time. It returns the first letter of the
// state after each step.
func run(m *Machine, script string) string {
	var got strings.Builder
	now := start
	for _, step := range script {
		switch step {
		case '+':
			m.Check("", now)
		case '-':
			m.Check("no answer", now)
		case 'd', 'u':
			m.Drain(step == 'd', now)
		default:
			m.Tick(now)
		}
		s, _, _ := m.State()
		got.WriteByte("SAFHD"[s])
		now = now.Add(time.Second)
	}
	return got.String()
}

func TestMachine(t *testing.T) {
	for _, tt := range []struct {
		name         string
		config       Config
		script, want string
	}{
		{"first success announces", Config{3, 3, 0}, ".-+", "SSA"},
		{"never works", Config{1, 1, 0}, "----", "SSSS"},
		{"what failed before the first success counts for nothing", Config{2, 3, 5 * time.Second}, "----+", "SSSSA"},
		{"one failure is forgiven", Config{3, 3, 0}, "+--+--+", "AAAAAAA"},
		{"three in a row withdraw", Config{3, 2, 0}, "+---++", "AAAFFA"},
		{"a failure begins the count again", Config{1, 2, 0}, "+-+-++", "AFFFFA"},
		{"hold-down outlasts recovery", Config{1, 1, 5 * time.Second}, "+-++...+.", "AFHHHHAAA"},
		{"hold-down shorter than the failure", Config{1, 1, 2 * time.Second}, "+----+", "AFFFFA"},
		{"relapse doubles", Config{1, 1, 2 * time.Second}, "+-+.-+.....", "AFHAFHHHAAA"},
		{"failures before the end of a failure are no relapse", Config{1, 2, 4 * time.Second}, "+-+-++..", "AFFFFAAA"},
		{"failure in hold-down", Config{1, 1, 3 * time.Second}, "+-+-+.......", "AFHFHHHHHAAA"},
		{"drain and back", Config{3, 3, 0}, "+d++u+", "ADDDAA"},
		{"drain before the first check", Config{3, 3, 0}, "d+u", "DDA"},
		{"failure while drained", Config{1, 1, 2 * time.Second}, "+d-u.+", "ADDFFA"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := run(&Machine{Config: tt.config}, tt.script); got != tt.want {
				t.Errorf("steps  %s\nstates %s\nwant   %s", tt.script, got, tt.want)
			}
		})
	}
}

// TestForget has a second failure long after the end of the first, however long that was:
// it counts as a first one.
func TestForget(t *testing.T) {
	for _, tt := range []struct {
		long, after time.Duration
		hold        time.Duration
	}{
		{0, forget*time.Second - 1, 2 * time.Second},
		{0, forget * time.Second, time.Second},
		{time.Hour, time.Second, 2 * time.Second},
		{time.Hour, forget*time.Second - 1, 2 * time.Second},
		{time.Hour, forget * time.Second, time.Second},
	} {
		m := Machine{Config: Config{1, 1, time.Second}}
		m.Check("", start)
		m.Check("no answer", start)
		over := start.Add(tt.long)
		m.Check("", over)
		m.Tick(over.Add(time.Second))
		again := over.Add(tt.after)
		m.Check("no answer", again)
		m.Check("", again)
		if got := m.Next(); got != again.Add(tt.hold) {
			t.Errorf("%v after a failure of %v: held down for %v, want %v", tt.after, tt.long, got.Sub(again), tt.hold)
		}
	}
}

// TestReload changes the patience while checks fail, and while they succeed again.
func TestReload(t *testing.T) {
	m := Machine{Config: Config{10, 10, 0}}
	if got := run(&m, "+-----"); got != "AAAAAA" {
		t.Fatalf("states %s", got)
	}
	m.Fall = 3
	if got := run(&m, "--"); got != "FF" {
		t.Errorf("with a smaller fall: states %s", got)
	}
	if got := run(&m, "+++++"); got != "FFFFF" {
		t.Fatalf("states %s", got)
	}
	m.Rise = 3
	if got := run(&m, "+"); got != "A" {
		t.Errorf("with a smaller rise: states %s", got)
	}
}

// TestReloadOfHoldDown has a relapse held down for as long as the configuration says by then.
func TestReloadOfHoldDown(t *testing.T) {
	m := Machine{Config: Config{1, 1, time.Second}}
	run(&m, "+-+")
	m.HoldDown = 5 * time.Second
	again := start.Add(3 * time.Second)
	m.Check("no answer", again)
	m.Check("", again)
	if got := m.Next(); got != again.Add(5*time.Second) {
		t.Errorf("held down for %v", got.Sub(again))
	}
}

func TestDoublingEnds(t *testing.T) {
	m := Machine{Config: Config{1, 1, time.Second}}
	now := start
	m.Check("", now)
	for range 100 {
		m.Check("no answer", now)
		m.Check("", now)
		if next := m.Next(); next.Sub(now) > maxDoubling*time.Second {
			t.Fatalf("held down for %v", next.Sub(now))
		}
		now = m.Next()
		m.Tick(now)
		if !m.Announced() {
			t.Fatal("not announced at the end of the hold-down time")
		}
	}
}

func TestProblemIsShownUntilAllIsWell(t *testing.T) {
	m := Machine{Config: Config{2, 1, 5 * time.Second}}
	m.Check("", start)
	for i, want := range []string{"", "b", "c"} {
		m.Check(string(rune('a'+i)), start)
		if _, _, got := m.State(); got != want {
			t.Errorf("after %d failures: %q, want %q", i+1, got, want)
		}
	}
	m.Check("", start)
	if s, _, problem := m.State(); s != HeldDown || problem != "c" {
		t.Errorf("%v, %q", s, problem)
	}
	m.Tick(start.Add(5 * time.Second))
	if s, since, problem := m.State(); s != Announced || problem != "" || since != start.Add(5*time.Second) {
		t.Errorf("%v since %v, %q", s, since, problem)
	}
}

// TestInvariants plays random scripts: what is drained or has failed is never
// announced, and two announcements with a failure in between are the hold-down
// time apart.
func TestInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		m := Machine{Config: Config{1 + r.IntN(3), 1 + r.IntN(3), time.Duration(r.IntN(4)) * time.Second}}
		var script []byte
		now, bad, drained := start, 0, false
		var fell time.Time
		for range 40 {
			step := "++--du."[r.IntN(7)]
			script = append(script, step)
			switch step {
			case '+':
				bad = 0
				m.Check("", now)
			case '-':
				bad++
				was := m.Announced()
				m.Check("no answer", now)
				if was && !m.Announced() {
					fell = now
				}
			case 'd', 'u':
				drained = step == 'd'
				m.Drain(drained, now)
			default:
				m.Tick(now)
			}
			if m.Announced() && (drained || bad >= m.Fall || !fell.IsZero() && now.Sub(fell) < m.HoldDown) {
				t.Fatalf("%+v announced after %s", m, script)
			}
			now = now.Add(500 * time.Millisecond)
		}
	}
}
