// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
)

// TestInterruptedStays: what an interrupted transfer has left is there until octets of the next one come.
func TestInterruptedStays(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // no one reads there
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	w := &world{t: t, root: t.TempDir()}
	g := &Get{Name: "film", Output: filepath.Join(t.TempDir(), "out")}
	g.reached = reached{Server: fmt.Sprintf("127.0.0.1:5000/%d", silent.LocalAddr().(*net.UDPAddr).Port), Local: ":0", Timeout: 50 * time.Millisecond, Tuning: w.settings("").Tuning}
	if err := os.WriteFile(g.Output+unfinished, []byte("the first octets"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.Run(t.Context(), role.Screen{Out: io.Discard, Err: io.Discard}); err == nil {
		t.Error("someone answers")
	}
	if b, err := os.ReadFile(g.Output + unfinished); string(b) != "the first octets" {
		t.Errorf("%q is left, %v", b, err)
	}
}

// TestGetTheRest: a transfer from an offset on goes behind the octets before it, and spoils no others.
func TestGetTheRest(t *testing.T) {
	w := newWorld(t)
	want := w.file("film", 3000)
	w.file("nothing", 0)
	w.serve("")
	dir := t.TempDir()
	get := func(source string, offset uint64) error {
		g := &Get{Name: source, Output: filepath.Join(dir, source), Offset: offset}
		g.reached = reached{Server: both, IPv6: true, Local: ":0", Timeout: time.Minute, Tuning: w.settings(quick).Tuning}
		return <-w.client.Go(func() error { return g.Run(t.Context(), role.Screen{Out: io.Discard, Err: io.Discard}) })
	}
	left := filepath.Join(dir, "film"+unfinished)
	if err := os.WriteFile(left, want[:1000], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, offset := range []uint64{999, 1001} {
		if err := get("film", offset); err == nil || !strings.Contains(err.Error(), "--offset 1000 gets those behind") {
			t.Errorf("octets from %d on: %v", offset, err)
		}
	}
	if b, err := os.ReadFile(left); !bytes.Equal(b, want[:1000]) {
		t.Errorf("%d octets are left, %v", len(b), err)
	}
	if err := get("film", 1000); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "film")); !bytes.Equal(b, want) {
		t.Errorf("another file of %d octets, %v", len(b), err)
	}
	if err := os.Remove(filepath.Join(dir, "film")); err != nil {
		t.Fatal(err)
	}
	if err := get("film", 1000); err != nil {
		t.Errorf("a part alone: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "film")); !bytes.Equal(b, want[1000:]) {
		t.Errorf("%d octets, not the part, %v", len(b), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nothing"+unfinished), want, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := get("nothing", 0); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "nothing")); err != nil || info.Size() != 0 {
		t.Errorf("a file of no octets has some: %v, %v", info, err)
	}
}
