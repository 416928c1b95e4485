// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// What a program at an interface has worked must be known, run by run, and only while
// runs are timed.
func TestWorkOfWhatIsAttached(t *testing.T) {
	testutil.NeedRoot(t)
	for _, hook := range []Hook{HookXDP, HookTC} {
		t.Run(string(hook), func(t *testing.T) {
			cable(t, func() error {
				if p, err := AttachedAt("v2", hook); err == nil {
					t.Errorf("%v is at an interface where nothing is", p)
				}
				m := arriving(t, hook)
				p, err := AttachedAt("v2", hook)
				if err != nil {
					return err
				}
				defer p.Close()
				s, err := OpenSender("v1")
				if err != nil {
					return err
				}
				defer s.Close()
				send := func(n int) Work {
					before, err := WorkOf(p)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.Stream(Frame6(mac1, mac2, Packet(here, there, MinTaggedSize)), 0, n, 0); err != nil {
						t.Fatal(err)
					}
					m.Await(t.Context(), 0, n, patience)
					after, err := WorkOf(p)
					if err != nil {
						t.Fatal(err)
					}
					return after.Since(before)
				}
				// The kernel times the programs of all while somebody wants it: experiments may meanwhile.
				for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
					m.Forget(0, 8)
					w := send(4)
					if w.Runs == 0 {
						break
					}
					if time.Now().After(end) {
						t.Errorf("without timing it has worked %+v", w)
						break
					}
				}
				timing, err := TimeRuns()
				if err != nil {
					return err
				}
				defer timing.Close()
				m.Forget(0, 8)
				if w := send(8); w.Runs < 8 || !(w.Each() > 0) {
					t.Errorf("8 packets were work of %+v", w)
				}
				return nil
			})
		})
	}
}

// The timing itself must take some time, and less than a program that is measured.
func TestTimedNothing(t *testing.T) {
	testutil.NeedRoot(t)
	ns, err := TimedNothing()
	if err != nil {
		t.Fatal(err)
	}
	if !(ns > 0) {
		t.Errorf("nothing takes %v ns", ns)
	}
	t.Logf("%.1f ns", ns)
}
