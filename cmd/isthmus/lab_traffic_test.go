// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/traffic"
)

// A flow goes from one command to the other by each protocol: both end by themselves, every message is in the log, and
// D-ITG's decoder comes to the same statistics.
func TestLabTraffic(t *testing.T) {
	ns := testutil.NewNetns(t)
	for _, protocol := range []string{"udp", "tcp", "sctp", "mptcp"} {
		t.Run(protocol, func(t *testing.T) {
			dir := t.TempDir()
			log, windows := filepath.Join(dir, "log"), filepath.Join(dir, "windows")
			received := receiveTraffic(t, ns, "--protocol", protocol, "--log", log, "--windows", windows, "--window", "100ms")
			var status int
			var out, errs string
			by, args := protocol, []string{"lab", "traffic", "send", "[::1]:8999", "--protocol", protocol, "--flow", "7", "--rate", "500", "--count", "150", "--size", "100", "--max-size", "300"}
			if strings.HasSuffix(protocol, "tcp") {
				by += ", congestion control reno"
				args = append(args, "--congestion", "reno")
			}
			ns.Do(t, func() error {
				status, out, errs = call(args...)
				return nil
			})
			if status != 0 || !strings.HasPrefix(out, "flow 7 by "+by+": 150 messages, ") {
				t.Errorf("the sender: %d\n%s%s", status, out, errs)
			}
			summary := received()
			if !strings.Contains(summary, "Flow number: 7\n") || !strings.Contains(summary, "Total packets            =           150\n") {
				t.Errorf("the receiver says\n%s", summary)
			}
			rows, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			n := uint32(0)
			for row := range strings.Lines(string(rows)) {
				r, err := traffic.ParseRow(row)
				if n++; err != nil || r.Flow != 7 || r.Number != n || r.Size < 100 || r.Size > 300 {
					t.Fatalf("row %d is %q: %v", n, row, err)
				}
			}
			if n != 150 {
				t.Errorf("%d rows", n)
			}
			b, err := os.ReadFile(windows)
			if line, _, _ := strings.Cut(string(b), "\n"); err != nil || len(strings.Fields(line)) != 6 || !strings.HasPrefix(line, "7 0.000000 ") {
				t.Errorf("the first window is %q: %v", line, err)
			}
			decodedAlike(t, log, summary)
		})
	}
}

// receiveTraffic starts a receiver of one flow; received waits for its end, and returns what it wrote.
func receiveTraffic(t *testing.T, ns *testutil.Netns, args ...string) (received func() string) {
	t.Helper()
	read, write := io.Pipe()
	var out strings.Builder
	done := ns.Go(func() error {
		defer write.Close()
		if status := execute(append([]string{"lab", "traffic", "receive"}, args...), streams{&out, write}); status != 0 {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	lines := bufio.NewReader(read)
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "listening at [::]:8999") {
		t.Fatalf("it says %q: %v", line, err)
	}
	return func() string {
		t.Helper()
		rest, _ := io.ReadAll(lines)
		if err := <-done; err != nil {
			t.Errorf("the receiver: %v\n%s", err, rest)
		}
		return out.String()
	}
}

// decodedAlike has ITGDec read a log: of what ours says, all but the addresses, which it pads, is its own, to the last
// digit of a microsecond.
func decodedAlike(t *testing.T, log, ours string) {
	t.Helper()
	found, err := peers.Find()
	if err != nil {
		testutil.Missing(t, err)
	}
	decoder, err := found.Program("ITGDec")
	if err != nil {
		testutil.Missing(t, err)
	}
	c := exec.CommandContext(t.Context(), decoder, log, "-t", "-v")
	c.Dir = filepath.Dir(log)
	theirs, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(ours) {
		name, value, figure := strings.Cut(line, "=")
		if !figure {
			continue
		}
		_, rest, ok := strings.Cut(string(theirs), name+"=")
		was, _, _ := strings.Cut(rest, "\n")
		if !ok || !nearly(was, value) {
			t.Errorf("%s is %q, ITGDec says %q", strings.TrimSpace(name), value, was)
		}
	}
}

// nearly compares two figures with units: times are rounded to microseconds in a log, and rates come of them.
func nearly(a, b string) bool {
	var x, y float64
	_, err1 := fmt.Sscan(a, &x)
	_, err2 := fmt.Sscan(b, &y)
	return err1 == nil && err2 == nil && math.Abs(x-y) <= 2e-6+1e-5*x
}

func TestLabTrafficToNobody(t *testing.T) {
	ns := testutil.NewNetns(t)
	for _, protocol := range []string{"udp", "tcp"} {
		ns.Do(t, func() error {
			status, out, errs := call("lab", "traffic", "send", "[::1]:8999", "--protocol", protocol, "--rate", "10", "--count", "5")
			if status != exitFailed || out != "" || !strings.Contains(errs, "nobody receives at [::1]:8999 by "+protocol+": start isthmus lab traffic receive there first") {
				t.Errorf("%s: %d\n%s%s", protocol, status, out, errs)
			}
			return nil
		})
	}
}

// What a flow cannot be sent or received for is said in a sentence, with what to do.
func TestLabTrafficTroubles(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		taken, err := net.Listen("tcp", "[::1]:8998")
		if err != nil {
			return err
		}
		defer taken.Close()
		for _, one := range []struct{ args, want string }{
			{"send [::1]:8999 --congestion reno", "udp has no --congestion and no --no-delay: leave them out, or write --protocol tcp or mptcp"},
			{"send [::1]:8999 --protocol sctp --no-delay", "sctp has no --congestion and no --no-delay: leave them out"},
			{"send [::1]:8998 --protocol tcp --congestion none-such", `congestion control "none-such" cannot be used: write one that sysctl net.ipv4.tcp_available_congestion_control lists`},
			{"send [2001:db8::1]:8999", "there is no route from here to [2001:db8::1]:8999: give this host an address of that family and a route"},
			{"send receiver.invalid:8999", "the name in receiver.invalid:8999 has no address: write the address"},
			{"send [::1]:8999 --rate 1e300", "1e+300 messages a second cannot be sent: give a rate from 1e-06 to 10000000"},
			{"receive --window 1ns", "write a --window of 1ms or more, and --flows from 0"},
			{"receive --listen 8999", "write --listen like [::]:8999: "},
			{"receive --listen [::1]:8998 --protocol tcp", "another program has [::1]:8998: stop it, or choose another port by --listen"},
			{"receive --listen [2001:db8::1]:8999", "[2001:db8::1]:8999 is no address of this host: choose one of those that ip address lists"},
		} {
			status, out, errs := call(append([]string{"lab", "traffic"}, strings.Fields(one.args)...)...)
			if status == 0 || out != "" || !strings.Contains(errs, one.want) {
				t.Errorf("%s: %d\n%s%s", one.args, status, out, errs)
			}
		}
		return nil
	})
}

// A flow that was lost but for its end is shown, and counts; one that has ended takes no more.
func TestLabTrafficCountsEnds(t *testing.T) {
	var out strings.Builder
	ended := 0
	k := &trafficLog{out: &out, left: 2, done: func() { ended++ }, flows: map[trafficKey]*traffic.Meter{}}
	from, to := netip.MustParseAddrPort("[2001:db8::a]:1"), netip.MustParseAddrPort("[2001:db8::b]:2")
	k.Ended(1, from, to, 5)
	k.Ended(1, from, to, 5)
	k.Got(&traffic.Record{Flow: 1, From: from, To: to, Number: 1, Size: 100})
	if ended != 0 || strings.Count(out.String(), "Flow number") != 1 || !strings.Contains(out.String(), "Packets dropped          =             5 (100.00 %)\n") {
		t.Errorf("%d ended:\n%s", ended, out.String())
	}
	k.Got(&traffic.Record{Flow: 2, From: from, To: to, Number: 1, Size: 100})
	k.Ended(2, from, to, 1)
	if ended != 1 || strings.Count(out.String(), "Flow number") != 2 {
		t.Errorf("%d ended:\n%s", ended, out.String())
	}
	for flow := range uint32(maxTrafficFlows) {
		k.Got(&traffic.Record{Flow: 10 + flow, From: from, To: to, Number: 1, Size: 100})
	}
	if err := k.finish(); err == nil || !strings.Contains(err.Error(), "2 messages of more than 1000 flows") || strings.Count(out.String(), "Flow number") != maxTrafficFlows {
		t.Errorf("%v, %d flows are shown", err, strings.Count(out.String(), "Flow number"))
	}
}
