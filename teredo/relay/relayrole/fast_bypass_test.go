// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// nft runs nft commands in the relay's namespace.
func (r *rig) nft(t *testing.T, rules string) {
	t.Helper()
	r.relayNS.Do(t, func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	})
}

// nothingArrives checks that the client receives nothing that the host has sent,
// by what the host sends afterwards by a way that is known to work.
func (r *rig) nothingArrives(t *testing.T) {
	t.Helper()
	if err := r.client.SetReadDeadline(time.Now().Add(teredotest.Vain)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	if n, err := r.client.Read(buf); err == nil {
		t.Errorf("the client got %x", buf[:n])
	}
	if err := r.client.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

const dropTeredo = `table inet guard { chain forward { type filter hook forward priority 0; ip6 daddr 2001::/32 udp dport 9000 drop; }; }`

// Auto stays with the engine where a firewall looks at what is forwarded, and comes
// back when the firewall goes.
func TestFastPathNeverSkipsAFirewall(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeAuto))
	r.awaitPath(t, "tc")
	r.establish(t)
	r.nft(t, dropTeredo)
	f := r.awaitPath(t, "engine")
	if len(f.Bypassed) == 0 || !strings.Contains(f.Why, f.Bypassed[0].What) {
		t.Errorf("why: %q, bypassed: %+v", f.Why, f.Bypassed)
	}
	r.hostSends(t, "dropped by the rule")
	r.nothingArrives(t)
	r.nft(t, "delete table inet guard")
	r.awaitPath(t, "tc")
	r.hostSends(t, "let through")
	wantText(t, "the client got", clientReceives(t, r.client), "let through hop 63")
}

// The same for a policy rule, which sends some packets elsewhere.
func TestFastPathNeverSkipsAPolicyRule(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeAuto))
	r.awaitPath(t, "tc")
	r.establish(t)
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority = netlink.FAMILY_V6, 100, 50
	rule.Dst = &net.IPNet{IP: relayClientIP.AsSlice(), Mask: net.CIDRMask(128, 128)}
	r.relayNS.Do(t, func() error {
		if err := netlink.RuleAdd(rule); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: rule.Dst, Table: 100, Type: unix.RTN_BLACKHOLE})
	})
	f := r.awaitPath(t, "engine")
	if len(f.Bypassed) == 0 {
		t.Errorf("why: %q", f.Why)
	}
	r.hostSends(t, "goes nowhere")
	r.nothingArrives(t)
	r.relayNS.Do(t, func() error { return netlink.RuleDel(rule) })
	r.awaitPath(t, "tc")
	r.hostSends(t, "let through")
	wantText(t, "the client got", clientReceives(t, r.client), "let through hop 63")
}

// logged collects what a relay says.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) lines(with string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}

// Who asks for tc gets it, a firewall or not, and is told.
func TestFastPathWarnsWhereItSkips(t *testing.T) {
	log := &logged{}
	r := newFastRig(t, by(fastpath.ModeTC))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.log = slog.New(slog.NewTextHandler(log, nil))
	r.nft(t, dropTeredo)
	r.start(t, ModeRelay)
	f := r.awaitPath(t, "tc")
	if len(f.Bypassed) == 0 {
		t.Error("status does not show what is skipped")
	}
	for deadline := time.Now().Add(testutil.Patience); len(log.lines("do not meet")) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is logged")
		}
	}
	if lines := log.lines("do not meet"); len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") {
		t.Errorf("logged: %q", lines)
	}
	for range 3 { // what it looks at has not changed
		r.relay.fast.Wake()
		time.Sleep(50 * time.Millisecond)
	}
	if lines := log.lines("do not meet"); len(lines) != 1 {
		t.Errorf("logged again: %q", lines)
	}
}
