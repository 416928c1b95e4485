// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/fetch"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// world is a client and a server in two networks, each a bridge in a namespace of its own:
//
//	client ca ---- bridge a, 2001:db8:1::/64 ---- sa server
//	       cb ---- bridge b, 2001:db8:2::/64 ---- sb
//
// The client is a, the server b in each network. A cut takes the server's end out of a bridge: both links stay up.
type world struct {
	t                      *testing.T
	client, server, middle *testutil.Netns
	root                   string
}

const both = "[2001:db8:1::b]/[2001:db8:2::b]:5000"

func newWorld(t *testing.T) *world {
	w := &world{t, testutil.NewNetns(t), testutil.NewNetns(t), testutil.NewNetns(t), t.TempDir()}
	w.middle.Do(t, func() error {
		var errs []error
		for _, net := range []string{"a", "b"} {
			bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: net}}
			errs = append(errs, netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge))
			for of, to := range map[string]*testutil.Netns{"c": w.client, "s": w.server} {
				veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: of + net, MasterIndex: bridge.Index}, PeerName: of + net, PeerNamespace: netlink.NsFd(to.Handle())}
				errs = append(errs, netlink.LinkAdd(veth), netlink.LinkSetUp(veth))
			}
		}
		return errors.Join(errs...)
	})
	w.address(w.client, "c", "a")
	w.address(w.server, "s", "b")
	w.client.AwaitLinks(t, "ca", "cb") // from no other link does a host dial
	w.server.AwaitLinks(t, "sa", "sb")
	return w
}

func (w *world) address(ns *testutil.Netns, link, host string) {
	ns.Do(w.t, func() error {
		var errs []error
		for i, net := range []string{"a", "b"} {
			l, err := netlink.LinkByName(link + net)
			if err != nil {
				return err
			}
			a, err := netlink.ParseAddr(fmt.Sprintf("2001:db8:%d::%s/64", i+1, host))
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			errs = append(errs, netlink.LinkSetUp(l), netlink.AddrAdd(l, a))
		}
		return errors.Join(errs...)
	})
}

// cut cuts a network, or has it work again.
func (w *world) cut(net string, cut bool) {
	w.middle.Do(w.t, func() error {
		port, err := netlink.LinkByName("s" + net)
		if err != nil || cut {
			return errors.Join(err, netlink.LinkSetNoMaster(port))
		}
		bridge, err := netlink.LinkByName(net)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(port, bridge)
	})
}

var (
	discard = slog.New(slog.DiscardHandler)
	control = sctp.Message{Stream: transfer.ControlStream, PPID: transfer.PPID}
)

// quick has paths fail, and return, soon.
const quick = "rto_initial = \"100ms\"\nrto_min = \"100ms\"\nrto_max = \"1s\"\nheartbeat_interval = \"100ms\"\n"

func (w *world) settings(lines string) *Settings {
	w.t.Helper()
	return configtest.One(w.t, Role.Section, fmt.Sprintf("[[sctp_media]]\nroot = %q\n%s", w.root, lines)).(*Settings)
}

// serve runs a server.
func (w *world) serve(lines string) *Instance {
	w.t.Helper()
	i, err := New(*w.settings(lines), discard)
	if err != nil {
		w.t.Fatal(err)
	}
	roletest.Start(w.t, w.server, i)
	return i
}

// file makes one of the server's, and returns its octets.
func (w *world) file(name string, size int) []byte {
	w.t.Helper()
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 7 >> (i % 5))
	}
	path := filepath.Join(w.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, 0o644)); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// quickClient is that of a client that is quick, too.
func quickClient() fetch.Config {
	p := sctp.Defaults()
	p.RTOInitial, p.RTOMin, p.RTOMax, p.HeartbeatInterval = 100*time.Millisecond, 100*time.Millisecond, time.Second, 100*time.Millisecond
	p.MaxInitRetrans = 30 // a busy machine takes its time to set a network up
	p.SendBuffer, p.ReceiveBuffer = 1<<20, 1<<20
	return fetch.Config{Network: "sctp6+udp", Local: ":0", Parameters: p}
}

// dial sets up an association.
func (w *world) dial(c fetch.Config, server string) (client *fetch.Client, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), testutil.Patience)
	defer cancel()
	w.client.Do(w.t, func() error { client, err = fetch.Dial(ctx, c, server); return nil })
	if err == nil {
		w.t.Cleanup(client.Abort)
	}
	return client, err
}

func (w *world) mustDial(c fetch.Config, server string) *fetch.Client {
	w.t.Helper()
	client, err := w.dial(c, server)
	if err != nil {
		w.t.Fatal(err)
	}
	return client
}

// get gets a source, and returns its octets.
func (w *world) get(c *fetch.Client, r transfer.Request) ([]byte, *fetch.Result, error) {
	var b bytes.Buffer
	res, err := c.Get(w.t.Context(), fetch.Options{Request: r, Output: &b})
	return b.Bytes(), res, err
}

func (w *world) mustGet(c *fetch.Client, r transfer.Request) ([]byte, *fetch.Result) {
	w.t.Helper()
	b, res, err := w.get(c, r)
	if err != nil {
		w.t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	if s := hex.EncodeToString(sum[:]); res.SHA256 != s || res.ServerSHA256 != s {
		w.t.Fatalf("the hashes are %s, %s and %s", s, res.SHA256, res.ServerSHA256)
	}
	return b, res
}

// session waits until the server has a session, and returns it.
func (w *world) session(i *Instance) (s *session) {
	w.t.Helper()
	w.until(func() bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		for s = range i.sessions {
			return true
		}
		return false
	})
	return s
}

// until waits until something is so.
func (w *world) until(so func() bool) {
	w.t.Helper()
	for range 6000 {
		if so() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatal("it does not come to be")
}

// works waits until all paths of both ends that lie in one network work.
func (w *world) works(conns ...*sctp.Conn) {
	w.t.Helper()
	w.until(func() bool {
		for _, c := range conns {
			n := 0
			for _, p := range c.Status().Paths {
				if sameNet(p.Pair) && p.State == sctp.PathStateActive && !p.Doubted && p.Confirmed && p.SRTT > 0 {
					n++
				}
			}
			if n < 2 {
				return false
			}
		}
		return true
	})
}

func sameNet(p sctp.Pair) bool { return netip.PrefixFrom(p.Local, 64).Masked().Contains(p.Remote) }

// dropped returns a counter.
func dropped(i *Instance, why string) (n float64) {
	i.Collect(func(m role.Metric) {
		if m.Name == role.DroppedName && m.Reason == why {
			n += m.Value
		}
	})
	return n
}
