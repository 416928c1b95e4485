// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestDialogue compares whole lives of contexts, octet by octet, with testdata: what a GGSN hears
// of a terminal that attaches, solicits, talks, changes its quality, moves and detaches.
func TestDialogue(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		for _, kind := range []gtp.PDPType{gtp.PDPTypeIPv4, gtp.PDPTypeIPv6, gtp.PDPTypeIPv4v6} {
			name := fmt.Sprintf("gtpv%d-%s", v, strings.ToLower(kind.String()))
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, Settings{Recovery: 3, EchoInterval: time.Minute})
				var text strings.Builder
				heard := func(what string) {
					fmt.Fprintf(&text, "# %s\n", what)
					for _, d := range w.out.UDP {
						address, plane := planeOf(d.Socket)
						fmt.Fprintf(&text, "%s:%d > %s %x\n", w.e.set.Addresses[address], plane.Port(), d.To, d.Payload)
					}
					w.clear()
				}
				a := attachment(v, kind)
				a.PCSCF, a.User, a.Password = true, "mig", "hemmelig"
				key, err := w.e.Attach(a, w.now, &w.out)
				w.order(err)
				w.accept(nil)
				heard("attach")
				if kind != gtp.PDPTypeIPv4 {
					w.advertise(key, defaultRA())
					w.e.HandleUE(1, packet.AppendICMPv6(nil, six, host, 64, packet.ICMPv6EchoRequest, 0, []byte{0, 1, 0, 1}), w.now, &w.out)
				}
				if kind != gtp.PDPTypeIPv6 {
					w.e.HandleUE(1, udp4(four, host4, 9, 8), w.now, &w.out)
				}
				heard("packets")
				w.order(w.e.Update(key, gtp.QoS{}, w.now, &w.out))
				w.granted(gtp.CauseAccepted)
				heard("update")
				w.order(w.e.Move(key, 1, v, w.now, &w.out))
				w.granted(gtp.CauseAccepted)
				heard("move")
				w.wait(time.Minute)
				heard("echo")
				w.order(w.e.Detach(key, true, w.now, &w.out))
				heard("detach")
				golden(t, filepath.Join("testdata", name+".txt"), text.String())
			})
		}
	}
}

// golden compares a text with a file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *configtest.Update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("heard\n%s, want\n%s", got, want)
	}
}
