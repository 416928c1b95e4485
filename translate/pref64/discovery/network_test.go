// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

const (
	patience = testutil.Patience
	// hostEnv makes this program a host that watches, in the namespace where it is
	// started.
	hostEnv = "ISTHMUS_TEST_PREF64_HOST"
)

func TestMain(m *testing.M) {
	if os.Getenv(hostEnv) != "" {
		watchAndPrint()
		return
	}
	testutil.ParallelTests(8)
	os.Exit(m.Run())
}

// watchAndPrint prints each set on a line of its own until standard input ends.
func watchAndPrint() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	s := Settings{Interface: "lan0", AdvertisementWait: time.Second}
	if at := os.Getenv(hostEnv); at != "routers" {
		s.Resolvers = []netip.AddrPort{netip.MustParseAddrPort(at)}
	}
	sets, err := Watch(ctx, s)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	for set := range sets {
		fmt.Println(set.Source, set.Prefixes)
	}
}

// network is a router and a host on one link, lan0 at both ends.
type network struct{ router, host *testutil.Netns }

func newNetwork(t *testing.T) network {
	t.Helper()
	n := network{testutil.NewNetns(t), testutil.NewNetns(t)}
	n.router.AddressesAtOnce(t)
	n.host.AddressesAtOnce(t)
	n.join(t, "lan0", netip.MustParsePrefix("2001:db8:1::/64"))
	return n
}

// join makes the link; name is that of the router's end.
func (n network) join(t *testing.T, name string, prefix netip.Prefix) {
	t.Helper()
	n.router.Do(t, func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "lan0", PeerNamespace: netlink.NsFd(n.host.Handle())}
		return netlink.LinkAdd(link)
	})
	address := prefix.Addr()
	for _, end := range []struct {
		of   *testutil.Netns
		link string
	}{{n.router, name}, {n.host, "lan0"}} {
		address = address.Next()
		end.of.Do(t, func() error {
			lan, err := netlink.LinkByName(end.link)
			if err != nil {
				return err
			}
			own := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 128)}}
			return errors.Join(netlink.LinkSetUp(lan), netlink.AddrAdd(lan, own))
		})
	}
	n.host.AwaitLinks(t, "lan0")
	n.router.AwaitLinks(t, name)
}

// watched is a host that watches.
type watched struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *watched) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *watched) last() string {
	all := strings.Split(strings.TrimSpace(w.said()), "\n")
	return all[len(all)-1]
}

func (w *watched) await(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(patience); w.last() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the host says %q, want %q", w.last(), want)
		}
	}
}

// awaitText waits until a text was said.
func (w *watched) awaitText(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(w.said(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in:\n%s", want, w.said())
		}
	}
}

func (n network) watch(t *testing.T, resolver string) *watched {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), hostEnv+"="+resolver)
	w := new(watched)
	cmd.Stdout, cmd.Stderr = w, w
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.host.Do(t, cmd.Start)
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return w
}

// announce runs an announcer in the router.
func (n network) announce(t *testing.T, a *Announcer) (stop func(cause error)) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	started := make(chan struct{})
	go n.router.Do(t, func() error {
		close(started)
		err := a.Run(ctx)
		ended <- err
		return err
	})
	<-started
	stop = func(cause error) {
		cancel(cause)
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			ended <- nil
		case <-time.After(patience):
			t.Error("it does not end")
		}
	}
	t.Cleanup(func() { stop(context.Canceled) })
	return stop
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func announcer(t *testing.T, log *slog.Logger, texts ...string) *Announcer {
	t.Helper()
	a, err := NewAnnouncer(AnnounceSettings{Interface: "lan0", Prefixes: prefixes(texts...), Interval: pref64.MinInterval}, log)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func value(a *Announcer, name string) float64 {
	found := -1.0
	a.Collect(func(m role.Metric) {
		if m.Name == name {
			found = m.Value
		}
	})
	return found
}

// awaitValue waits until a counter has at least a value.
func awaitValue(t *testing.T, a *Announcer, name string, least float64) {
	t.Helper()
	for end := time.Now().Add(patience); value(a, name) < least; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is %v, want %v", name, value(a, name), least)
		}
	}
}

// solicit has the host ask for an advertisement.
func (n network) solicit(t *testing.T) {
	t.Helper()
	n.host.Do(t, func() error {
		s, err := listen("lan0", nil, ipv6.ICMPTypeRouterAdvertisement)
		if err != nil {
			return err
		}
		defer s.close()
		return s.write(pref64.AppendSolicitation(nil), netip.Addr{}, packet.AllRouters)
	})
}
