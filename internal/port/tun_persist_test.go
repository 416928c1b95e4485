// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// persistent opens two queues of a device that outlives them, up and with a route.
func persistent(t *testing.T, h *Host) []*TUN {
	t.Helper()
	queues, err := OpenTUNQueues(TUNConfig{Name: "teredo", Persistent: true, Offload: true}, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(queues) })
	if err := h.SetUp("teredo"); err != nil {
		t.Fatal(err)
	}
	if err := h.AddRoute(Route{Dst: tunRoute, Link: "teredo"}); err != nil {
		t.Fatal(err)
	}
	return queues
}

func closeAll(queues []*TUN) {
	for _, q := range queues {
		q.Close()
	}
}

// routed reports whether the route of persistent is there.
func routed(t *testing.T) bool {
	t.Helper()
	routes, err := testutil.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V6) })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Dst != nil && r.Dst.String() == tunRoute.String() {
			return true
		}
	}
	return false
}

func exists(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}

// The kernel makes no queues of its own before the readers', and what an operator has
// chosen instead stays over a restart.
func TestTUNQdisc(t *testing.T) {
	root := func() (kinds []string) {
		link, err := netlink.LinkByName("teredo")
		if err != nil {
			t.Fatal(err)
		}
		list, err := netlink.QdiscList(link)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range list {
			kinds = append(kinds, q.Type())
		}
		return kinds
	}
	first := persistent(t, inNamespace(t))
	if got := root(); !slices.Equal(got, []string{"noqueue"}) {
		t.Errorf("queueing disciplines %q of a new device", got)
	}
	chosen := netlink.QdiscAttrs{LinkIndex: first[0].Index(), Handle: netlink.MakeHandle(7, 0), Parent: netlink.HANDLE_ROOT}
	if err := netlink.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: chosen, QdiscType: "pfifo"}); err != nil {
		t.Fatal(err)
	}
	closeAll(first)
	again, err := OpenTUNQueues(TUNConfig{Name: "teredo", Persistent: true, Offload: true}, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(again)
	if got := root(); !slices.Equal(got, []string{"pfifo"}) {
		t.Errorf("queueing disciplines %q where an operator has chosen one", got)
	}
}

// A device that is left keeps its index and route, and the next process reads what
// the host sends.
func TestTUNPersistsAcrossProcesses(t *testing.T) {
	h := inNamespace(t)
	first := persistent(t, h)
	index := first[0].Index()
	if _, err := OpenTUNQueues(TUNConfig{Name: "teredo", Persistent: true}, 1); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("while it is open: %v", err)
	}
	closeAll(first)
	if !exists("teredo") || !routed(t) {
		t.Fatal("the device has gone, or its route")
	}
	second := persistent(t, h)
	if second[0].Index() != index {
		t.Errorf("index %d, was %d", second[0].Index(), index)
	}
	if err := h.AddAddr("teredo", tunHost); err != nil {
		t.Fatal(err)
	}
	c := dial(t)
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if p := readAny(t, second); string(p[48:]) != "hello" {
		t.Errorf("read %x", p)
	}
	if err := second[1].Discard(); err != nil {
		t.Fatal(err)
	}
	closeAll(second)
	// It goes when the last reader has noticed.
	for deadline := time.Now().Add(testutil.Patience); exists("teredo"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the device outlives its discarding")
		}
	}
}

// readAny returns the first UDP packet that one of the queues gets.
func readAny(t *testing.T, queues []*TUN) []byte {
	t.Helper()
	got := make(chan []byte, len(queues))
	for _, q := range queues {
		go func() {
			pkts := make([][]byte, MaxBatch)
			for {
				n, err := q.ReadBatch(pkts)
				if err != nil {
					return
				}
				for _, p := range pkts[:n] {
					if len(p) > 48 && p[6] == 17 {
						got <- append([]byte(nil), p...)
						return
					}
				}
			}
		}()
	}
	return <-got
}

// A process that wants no such device finds a fresh one.
func TestTUNReplacesWhatWasLeft(t *testing.T) {
	h := inNamespace(t)
	first := persistent(t, h)
	closeAll(first)
	_, err := OpenTUN(TUNConfig{Name: "teredo"})
	if err == nil || !strings.Contains(err.Error(), "another kind") {
		t.Fatalf("one queue of a device that has several: %v", err)
	}
	queues, err := OpenTUNQueues(TUNConfig{Name: "teredo"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	tun := queues[0]
	if tun.Index() == first[0].Index() || routed(t) {
		t.Error("the device that was left is still there")
	}
	tun.Close()
	if exists("teredo") {
		t.Error("the device outlives the process")
	}
}

func TestRemoveTUN(t *testing.T) {
	h := inNamespace(t)
	queues := persistent(t, h)
	if _, err := h.RemoveTUN("teredo"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a device in use: %v", err)
	}
	for _, set := range []func(netlink.Link) error{netlink.LinkSetUp, netlink.LinkSetDown} {
		if err := set(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Index: queues[0].Index()}}); err != nil {
			t.Fatal(err)
		}
		if names, err := h.LeftTUNs(); len(names) > 0 || err != nil {
			t.Errorf("left while it is open: %v, %v", names, err)
		}
		if _, err := OpenTUNQueues(TUNConfig{Name: "teredo", Persistent: true}, 1); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("a second process: %v", err)
		}
	}
	closeAll(queues)
	if names, err := h.LeftTUNs(); !slices.Equal(names, []string{"teredo"}) || err != nil {
		t.Errorf("left: %v, %v", names, err)
	}
	if removed, err := h.RemoveTUN("teredo"); !removed || err != nil || exists("teredo") {
		t.Errorf("what was left: %v, %v", removed, err)
	}
	if removed, err := h.RemoveTUN("teredo"); removed || err != nil {
		t.Errorf("nothing: %v, %v", removed, err)
	}
}

// A device that an operator has made stays as it was made.
func TestTUNOfSomebodyElse(t *testing.T) {
	h := inNamespace(t)
	made := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: "teredo"}, Mode: netlink.TUNTAP_MODE_TUN,
		Flags: netlink.TUNTAP_MULTI_QUEUE_DEFAULTS | netlink.TUNTAP_NO_PI, Queues: 1,
	}
	if err := netlink.LinkAdd(made); err != nil {
		t.Fatal(err)
	}
	for _, f := range made.Fds {
		f.Close()
	}
	if removed, err := h.RemoveTUN("teredo"); removed || err != nil {
		t.Errorf("%v, %v", removed, err)
	}
	queues := persistent(t, h)
	if err := queues[0].Discard(); err != nil {
		t.Error(err)
	}
	closeAll(queues)
	if !exists("teredo") {
		t.Error("it has gone")
	}
}
