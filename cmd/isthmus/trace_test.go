// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/trace"
)

func TestTrace(t *testing.T) {
	socket := serveTold(t)
	line := "00:00:03.000004 border fast   tc   eth0 punt (bubble): 2001:0:c000:201::1 > 2001:db8::1 none hops 64, 40 bytes\n"
	if status, out, errs := call("trace", "--socket", socket, "-n", "2", "punt", "and", "host 2001:db8::1"); status != 0 || out != line+line || errs != "2 packets\n" {
		t.Errorf("%d: %s%s", status, out, errs)
	}
	status, out, errs := call("trace", "--socket", socket, "-n", "1", "--json")
	var got trace.Sample
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || got.Text()+"\n" != line {
		t.Errorf("%d, %v: %s%s", status, err, out, errs)
	}
	file := filepath.Join(t.TempDir(), "out.pcapng")
	if status, out, errs := call("trace", "--socket", socket, "-n", "3", "-w", file); status != 0 || out != "" {
		t.Fatalf("%d: %s%s", status, out, errs)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("fast: punt bubble")); n != 3 {
		t.Errorf("the capture holds %d packets, want 3", n)
	}
}

// busy is told while somebody else traces.
type busy struct{ told }

func (busy) Trace(context.Context, string, trace.Sampling, func(*trace.Sample)) error {
	return trace.ErrBusy
}

// TestTraceKeepsCapture has traces refused: an earlier capture of that name stays.
func TestTraceKeepsCapture(t *testing.T) {
	nobody, other := filepath.Join(t.TempDir(), "none.sock"), filepath.Join(t.TempDir(), "control.sock")
	serveAt(t, other, busy{})
	for name, socket := range map[string]string{"no daemon": nobody, "another trace": other} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out.pcapng")
			if err := os.WriteFile(file, []byte("earlier packets"), 0o600); err != nil {
				t.Fatal(err)
			}
			status, _, errs := call("trace", "--socket", socket, "-w", file)
			if b, err := os.ReadFile(file); status == 0 || string(b) != "earlier packets" {
				t.Errorf("%d, %v: the capture is %q; %s", status, err, b, errs)
			}
		})
	}
}

// TestTraceKilled reads a capture that nobody has ended: what was shown is in it, in place of what it had before.
func TestTraceKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.pcapng")
	if err := os.WriteFile(file, bytes.Repeat([]byte("earlier packets"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	show, finish, err := (&TraceCmd{Write: file}).shower(streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = finish() }()
	if err := show(&trace.Sample{Path: trace.Fast, Verdict: trace.Punt, Reason: "bubble"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(b, []byte("fast: punt bubble")) || bytes.Contains(b, []byte("earlier")) {
		t.Errorf("%v: %q", err, b)
	}
}

func TestTraceUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, `"nonsense" is no word of a filter`},
		{[]string{"--every", "0"}, "every 0-th packet cannot be taken"},
		{[]string{"--count=-1"}, "write a number above 0"},
		{[]string{"--json", "-w", "x"}, "exclude each other"},
	} {
		status, _, errs := call(append([]string{"trace"}, c.args...)...)
		if status != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%v: %d: %s", c.args, status, errs)
		}
	}
	if _, help, _ := call("trace", "--help"); !strings.Contains(help, "reason WORD") {
		t.Errorf("the help does not show the filter language:\n%s", help)
	}
}
