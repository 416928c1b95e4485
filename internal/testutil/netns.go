// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Netns is a network namespace that lives as long as its test.
type Netns struct {
	handle netns.NsHandle
}

// NewNetns makes an empty network namespace with its loopback up. It vanishes
// with the test, and everything in it. The caller's thread stays where it is.
// It needs root.
func NewNetns(t testing.TB) *Netns {
	t.Helper()
	NeedRoot(t)
	n := &Netns{handle: netns.None()}
	t.Cleanup(func() { n.handle.Close() })
	made := onThread(func() error {
		var err error
		if n.handle, err = netns.New(); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(lo), filterNothing())
	})
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	return n
}

// filterNothing switches off the reverse path filter, of which a namespace inherits
// whatever the machine has.
func filterNothing() error {
	var errs []error
	for _, of := range []string{"all", "default", "lo"} {
		errs = append(errs, os.WriteFile("/proc/sys/net/ipv4/conf/"+of+"/rp_filter", []byte("0"), 0))
	}
	return errors.Join(errs...)
}

// Do runs f on a thread inside the namespace. Sockets that f opens and
// processes that it starts stay in the namespace afterwards. Goroutines that f
// starts do not run in it.
func (n *Netns) Do(t testing.TB, f func() error) {
	t.Helper()
	if err := <-n.Go(f); err != nil {
		t.Fatal(err)
	}
}

// Go runs f as [Netns.Do] does, beside the test, and returns what f's error is sent to.
func (n *Netns) Go(f func() error) <-chan error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return err
		}
		return f()
	})
}

// Counted is what the kernel has counted of packets in the namespace, for whoever wonders where some are.
func (n *Netns) Counted(t testing.TB) (text string) {
	t.Helper()
	n.Do(t, func() error {
		for _, file := range []string{"snmp6", "snmp", "dev", "softnet_stat", "udp6", "udp"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return err
			}
			text += "# " + file + "\n" + string(b)
		}
		return nil
	})
	return text
}

// Show makes the namespace one that others can find, as they would that of a
// container: a process lives in it until the test ends.
func (n *Netns) Show(t testing.TB) {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	n.Do(t, cmd.Start)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// Handle returns the namespace's descriptor, for moving links into it. It is
// closed when the test ends.
func (n *Netns) Handle() int { return int(n.handle) }

// onThread runs f on a thread of its own. The thread is locked and never unlocked, so
// the runtime ends it together with its goroutine and no other goroutine ever runs in its
// namespace.
func onThread(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		defer close(done) // also where f ends the test, which is no error of its own
		runtime.LockOSThread()
		done <- f()
	}()
	return done
}
