// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netns"
)

// Options say what is measured.
type Options struct {
	Peers  []int // peers, sessions or mappings in the table; all of them are used, in random order
	Sizes  []int // of the IPv6 packet, in bytes
	Repeat int   // packets in a round
	Rounds int
}

// Compiler is what made the programs.
const Compiler = "Debian clang 14.0.6, -O2 -mcpu=v3"

// Defaults are the options of the published table. Rounds are short, so that harness
// and program of one round meet the machine in one mood.
func Defaults() Options {
	return Options{Peers: []int{1 << 10, 1 << 16, 1 << 20}, Sizes: []int{64, 512, 1280}, Repeat: 1 << 18, Rounds: 31}
}

// Row is what one direction costs with so many peers.
type Row struct {
	Direction string // "encap" or "decap" of a relay, "to IPv4" or "to IPv6" of a translator
	Peers     int
	Size      int
	Gross     []float64 // nanoseconds a packet, harness included, one for each round
	Harness   []float64 // what the harness costs alone
}

// Net returns the median of the rounds' differences, and the least and greatest.
func (r *Row) Net() (median, least, greatest float64) {
	var net []float64
	for i := range r.Gross {
		net = append(net, r.Gross[i]-r.Harness[i])
	}
	slices.Sort(net)
	return net[len(net)/2], net[0], net[len(net)-1]
}

// Measure runs the programs, until ctx ends. It needs root and makes a network namespace of
// its own.
func Measure(ctx context.Context, o Options) ([]Row, error) {
	return measure(ctx, o, func(peers int) (bencher, error) {
		b := &bench{peers: peers, rig: rig{ns: netns.None()}}
		return b, b.open()
	})
}

// bencher is a role's tables, and the programs over them.
type bencher interface {
	// measure measures both directions at a size, rounds interleaved.
	measure(ctx context.Context, o Options, size int) ([]Row, error)
	close()
}

// measure takes all numbers of entries and all sizes.
func measure(ctx context.Context, o Options, open func(entries int) (bencher, error)) (rows []Row, err error) {
	one := func(entries int) error {
		b, err := open(entries)
		defer b.close()
		if err != nil {
			return err
		}
		for _, size := range o.Sizes {
			pair, err := b.measure(ctx, o, size)
			if err != nil {
				return err
			}
			rows = append(rows, pair...)
		}
		return nil
	}
	for _, entries := range o.Peers {
		if err := one(entries); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// measure is that of a relay.
func (b *bench) measure(ctx context.Context, o Options, size int) ([]Row, error) {
	if err := b.prepare(size); err != nil {
		return nil, err
	}
	return b.rounds(ctx, o, b.peers, size, []candidate{
		{"encap", b.objects.HarnessEncap, b.objects.CostEncap, b.toClient},
		{"decap", b.objects.HarnessDecap, b.objects.CostDecap, b.ofClient},
	})
}

// candidate is a program that is measured beside the harness alone.
type candidate struct {
	direction        string
	harness, program *ebpf.Program
	frame            []byte
}

// rounds measures candidates in turn.
func (r *rig) rounds(ctx context.Context, o Options, peers, size int, candidates []candidate) ([]Row, error) {
	rows := make([]Row, len(candidates))
	for i, c := range candidates {
		rows[i] = Row{Direction: c.direction, Peers: peers, Size: size}
	}
	for range o.Rounds {
		for i, c := range candidates {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			for _, m := range []struct {
				program *ebpf.Program
				to      *[]float64
			}{{c.harness, &rows[i].Harness}, {c.program, &rows[i].Gross}} {
				ns, err := r.run(m.program, c.frame, o.Repeat)
				if err != nil {
					return nil, fmt.Errorf("%d peers, %d bytes: %w", peers, size, err)
				}
				*m.to = append(*m.to, ns)
			}
		}
	}
	return rows, nil
}

const redirect = 4 // XDP_REDIRECT

// run repeats a program and returns nanoseconds a run. All frames must have been
// forwarded.
func (r *rig) run(p *ebpf.Program, frame []byte, repeat int) (ns float64, err error) {
	forwarded, err := r.forwarded()
	if err != nil {
		return 0, err
	}
	var code uint32
	var took time.Duration
	err = r.inside(func() error {
		code, took, err = benchmark(p, frame, repeat, r.turn)
		return err
	})
	if err != nil {
		return 0, err
	}
	if code != redirect {
		return 0, fmt.Errorf("%s returned %d for the last packet", p, code)
	}
	after, err := r.forwarded()
	if err != nil {
		return 0, err
	}
	if n := after - forwarded; n != 0 && n < uint64(repeat) {
		return 0, fmt.Errorf("%s forwarded %d of %d packets", p, n, repeat)
	}
	return float64(took.Nanoseconds()), nil
}

// benchmark is a test run that repeats. When a signal interrupts it, it starts again,
// and so does the program's count of turns.
func benchmark(p *ebpf.Program, frame []byte, repeat int, turn *ebpf.Variable) (code uint32, each time.Duration, err error) {
	var failed error
	reset := func() { failed = turn.Set(uint32(0)) }
	if reset(); failed != nil {
		return 0, 0, failed
	}
	code, each, err = p.Benchmark(frame, repeat, reset)
	if err = errors.Join(err, failed); err != nil {
		return 0, 0, fmt.Errorf("cannot run %s: %w", p, err)
	}
	return code, each, nil
}

// order is a random order of n, the same each time.
func order(n int) []int { return rand.New(rand.NewPCG(1, uint64(n))).Perm(n) }
