// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// packetsEnv says how many packets the differential fuzzer makes; 10000000 is the
// long form.
const packetsEnv = "ISTHMUS_DIFFER_PACKETS"

const shortForm = 200_000

func packetsWanted(t testing.TB) int {
	t.Helper()
	text := os.Getenv(packetsEnv)
	if text == "" {
		if testing.Short() {
			return shortForm / 10
		}
		return shortForm
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number of packets", packetsEnv, text)
	}
	return n
}

// epochPackets is how many packets one state of the tables lasts: the engine moves
// peers on, and would in the end know all of them.
const epochPackets = 500

// TestDiffer gives random packets to the programs and to the engine. What the
// programs forward the engine forwards, the same and to the same place; what they
// drop the engine drops; what they punt is untouched.
func TestDiffer(t *testing.T) {
	wanted := packetsWanted(t)
	changes := map[string]func(*teredobpf.Settings, *relay.Config){
		"router":   func(*teredobpf.Settings, *relay.Config) {},
		"host":     func(s *teredobpf.Settings, c *relay.Config) { s.Host, c.Host = true, true },
		"carrying": func(s *teredobpf.Settings, c *relay.Config) { s.Carry, c.CarryClients = true, true },
	}
	for name, share := range map[string]int{"router": 4, "host": 1, "carrying": 1} {
		for i, p := range runtest.Hooks {
			t.Run(name+", "+string(p), func(t *testing.T) {
				w := newWorld(t, changes[name])
				w.ns.Do(t, func() error {
					return w.differ(t, p, wanted*share/12, uint64(i+1))
				})
			})
		}
	}
}

// differ gives n packets to the program at a place.
func (w *world) differ(t *testing.T, p runtest.Hook, n int, seed uint64) error {
	g := &generator{rng: rand.New(rand.NewPCG(seed, uint64(n)))}
	r, e := w.runner(p), &engine{w: w}
	var verdicts [3]int
	w.counted()
	for i := range n {
		if i%epochPackets == 0 {
			w.settle()
		}
		frame := g.frame()
		if p == runtest.InTC && len(frame) < ethLen+ip6Len {
			continue // a test run takes no such skb
		}
		given := bytes.Clone(frame)
		res, err := r.Run(given)
		if err != nil {
			return err
		}
		if !bytes.Equal(frame, given) {
			return fmt.Errorf("the test run changed its input")
		}
		verdicts[res.Verdict]++
		if err := compare(frame, res, e.handle(frame)); err != nil {
			return fmt.Errorf("packet %d of seed %d, %x: %w", i, seed, frame, err)
		}
	}
	t.Logf("%d packets: %d forwarded, %d punted, %d dropped; reasons %v", n, verdicts[0], verdicts[1], verdicts[2], w.counted())
	for v, seen := range verdicts {
		if seen < n/50 {
			t.Errorf("%d of %d packets met the verdict %s: the generator misses it", seen, n, fastpath.Verdict(v))
		}
	}
	return nil
}
