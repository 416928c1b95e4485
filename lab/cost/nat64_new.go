// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// NewRow is what sessions cost that are made, and in the case of TCP end.
type NewRow struct {
	Transport string // "UDP": one packet; "TCP": a connection and its end, in seven segments
	Sessions  int    // in the table when the last one is made
	// Nanoseconds of one session, harness taken off, one for each round; what the daemon
	// does when a session has expired is not in them.
	Each []float64
}

// tcpCourse are the segments of a connection that is opened and closed at once: from
// which side, and with which flags.
var tcpCourse = []struct {
	of4   bool
	flags byte
}{
	{false, 2}, {true, 0x12}, {false, 0x10}, // SYN, SYN and ACK, ACK
	{false, 0x11}, {true, 0x10}, {true, 0x11}, {false, 0x10}, // FIN, ACK, FIN, ACK
}

const newSize = 64 // of the IPv6 packets

// MeasureNAT64New runs the translator's program over clients that have ports, and no
// sessions yet. Of o the peers, which are sessions here, and the rounds are read. It
// needs root and makes a network namespace of its own.
func MeasureNAT64New(ctx context.Context, o Options) (rows []NewRow, err error) {
	for _, sessions := range o.Peers {
		more, err := measureNew(ctx, sessions, o.Rounds)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func measureNew(ctx context.Context, sessions, rounds int) ([]NewRow, error) {
	// With less room there is a session now and then that the daemon must find a place for.
	b := newNATBench(sessions, 4*sessions, true)
	defer b.close()
	if err := b.open(); err != nil {
		return nil, err
	}
	rows := []NewRow{{Transport: "UDP", Sessions: sessions}, {Transport: "TCP", Sessions: sessions}}
	for range rounds {
		for i, f := range []func() (float64, error){b.newUDP, b.newTCP} {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			each, err := f()
			if err != nil {
				return nil, fmt.Errorf("%d new sessions of %s: %w", sessions, rows[i].Transport, err)
			}
			rows[i].Each = append(rows[i].Each, each)
		}
	}
	return rows, nil
}

// newUDP makes all sessions, and returns what one costs.
func (b *natBench) newUDP() (float64, error) {
	b.empty()
	b.prepare(newSize)
	return b.pass(b.objects.HarnessTo4, b.objects.CostTo4, b.from6)
}

// newTCP makes all connections, and then sends the other segments of each.
func (b *natBench) newTCP() (sum float64, err error) {
	b.empty()
	b.prepare(newSize)
	for _, step := range tcpCourse {
		harness, program, frame := b.objects.HarnessTo4, b.objects.CostTo4, b.from6
		protocol, flags := 14+6, 14+40+13
		if step.of4 {
			harness, program, frame = b.objects.HarnessTo6, b.objects.CostTo6, b.from4
			protocol, flags = 14+9, 14+20+13
			if err := b.learn(); err != nil {
				return 0, err
			}
		}
		// What is written where UDP has its checksum is of no weight here, nor is the
		// checksum of TCP, which the program brings up to date without looking.
		frame[protocol], frame[flags] = 6, step.flags
		ns, err := b.pass(harness, program, frame)
		if err != nil {
			return 0, err
		}
		sum += ns
	}
	return sum, nil
}

// pass sends one packet of each session.
func (b *natBench) pass(harness, program *ebpf.Program, frame []byte) (ns float64, err error) {
	if err := b.setFrames(); err != nil {
		return 0, err
	}
	alone, err := b.run(harness, frame, b.flows)
	if err != nil {
		return 0, err
	}
	gross, err := b.run(program, frame, b.flows)
	return gross - alone, err
}

// empty ends all sessions and bindings. The clients keep their ports.
func (b *natBench) empty() {
	b.table.WalkBindings(0, b.records, func(binding *state.Binding) { b.table.EndBinding(binding) })
}

// learn finds out which port each connection was bound to, for the packets back.
func (b *natBench) learn() error {
	for i := range b.parts {
		p := &b.parts[i]
		in := state.Inside{Client: natClient.As16(), Port: swap(p.ClientPort), Transport: state.TCP}
		for word, four := range p.Client {
			binary.NativeEndian.PutUint32(in.Client[4+4*word:], four)
		}
		var binding state.Binding
		if !b.table.FindBinding6(&in, &binding) {
			return fmt.Errorf("connection %d has no binding", i)
		}
		p.PoolPort = swap(binding.PoolPort)
		ip := b.from4[14:]
		ip[9] = 6
		binary.NativeEndian.PutUint32(ip[12:], p.Server)
		binary.NativeEndian.PutUint32(ip[16:], p.Pool)
		p.HeaderChecksum = headerChecksum(ip[:20])
	}
	return nil
}

// PerSecond turns nanoseconds of one into how many there are in a second.
func (r *NewRow) PerSecond() (out []float64) {
	for _, ns := range r.Each {
		out = append(out, 1e9/ns)
	}
	return out
}
