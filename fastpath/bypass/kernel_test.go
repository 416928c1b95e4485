// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func rule(family int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Table, r.Priority, r.Mark = family, 100, 1000, 1
	return r
}

// passAll loads a tc program that does nothing. The caller closes it.
func passAll(name string) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
}

// filter puts a filter on a device that looks at all packets and does nothing.
func filter(device string, parent uint32, name string) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	program, err := passAll("pass")
	if err != nil {
		return err
	}
	defer program.Close()
	clsact := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
	if err := netlink.QdiscReplace(clsact); err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Attrs().Index, Parent: parent, Priority: 7, Protocol: unix.ETH_P_ALL,
		},
		Fd: program.FD(), Name: name, DirectAction: true,
	})
}

// needTCX skips the test on kernels before 6.6.
func needTCX(t *testing.T) {
	t.Helper()
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		t.Skip("this kernel has no tcx")
	}
}

// attachTCX attaches a program that does nothing, for as long as the test takes.
func attachTCX(t *testing.T, device, name string) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	program, err := passAll(name)
	if err != nil {
		return err
	}
	defer program.Close()
	attached, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: program, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		t.Cleanup(func() { attached.Close() })
	}
	return err
}

// TestAnotherInstanceAttaches has an instance of the same process attach its program while this one looks: it is no stranger.
func TestAnotherInstanceAttaches(t *testing.T) {
	needTCX(t)
	ns := router(t)
	q := query
	attached := false
	q.Own = func() (ids []ebpf.ProgramID) {
		if !attached { // just behind what is asked first
			attached = true
			if err := attachTCX(t, "wan", "police"); err != nil {
				t.Error(err)
			}
			return nil
		}
		wan, err := netlink.LinkByName("wan")
		if err != nil {
			t.Error(err)
			return nil
		}
		all, err := link.QueryPrograms(link.QueryOptions{Target: wan.Attrs().Index, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			t.Error(err)
			return nil
		}
		for _, p := range all.Programs {
			ids = append(ids, p.ID)
		}
		return ids
	}
	checkFindings(t, ns, q, nil)
}

// ipsec adds a policy that blocks what is forwarded to a documentation prefix.
func ipsec() error {
	dst, err := netlink.ParseIPNet("2001:db8::/32")
	if err != nil {
		return err
	}
	src, err := netlink.ParseIPNet("::/0")
	if err != nil {
		return err
	}
	return netlink.XfrmPolicyAdd(&netlink.XfrmPolicy{Src: src, Dst: dst, Dir: netlink.XFRM_DIR_FWD, Action: netlink.XFRM_POLICY_BLOCK})
}

func TestTrackedConnectionsAreFound(t *testing.T) {
	ns := router(t)
	ns.Do(t, nft(t, `table ip6 t { chain o { type filter hook output priority 0; ct state new counter; } }`))
	checkFindings(t, ns, query, []string{"connection tracking: "})
}

func TestWatchSignals(t *testing.T) {
	ns := router(t)
	ruleset := nft(t, `table inet t { chain f { type filter hook forward priority 0; counter; } }`)
	changes := []struct {
		name string
		do   func() error
	}{
		{"nftables", ruleset},
		{"policy rule", func() error { return netlink.RuleAdd(rule(netlink.FAMILY_V6)) }},
		{"IPsec", ipsec},
		{"tc filter", func() error { return filter("wan", netlink.HANDLE_MIN_INGRESS, "police") }},
		{"forwarding", func() error { return forward("0") }},
		{"forwarding of IPv4", func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/wan/forwarding", []byte("1"), 0) }},
		{"reverse path filter", func() error { return reversePath("wan", "1") }},
		{"route inside the prefix", func() error { return netlink.RouteAdd(routeTo("2001:0:c633:6401::/64", "lan")) }},
	}
	var due <-chan struct{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ns.Do(t, func() (err error) {
		due, err = watch(ctx, query, time.Hour) // all signals are of events
		return err
	})
	for _, c := range changes {
		drain(due)
		ns.Do(t, c.do)
		select {
		case <-due:
		case <-time.After(testutil.Patience):
			t.Errorf("no signal after a change: %s", c.name)
		}
	}
	cancel()
	for range due { // closed at the end
	}
}

// drain waits until signals of what has been are over.
func drain(due <-chan struct{}) {
	for {
		select {
		case <-due:
		case <-time.After(2 * pause):
			return
		}
	}
}

func TestFindWithoutRights(t *testing.T) {
	if os.Getenv("BYPASS_TEST_UNPRIVILEGED") == "1" {
		found, err := Find(query)
		for _, f := range found {
			os.Stdout.WriteString("found: " + f.What + "\n")
		}
		if err != nil {
			os.Stdout.WriteString("unread: " + err.Error() + "\n")
		}
		return
	}
	ns := router(t)
	// The compiled test must be where a user without rights may run it.
	dir, err := os.MkdirTemp("", "bypass")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		t.Fatal(err)
	}
	ns.Do(t, func() error {
		if err := netlink.RuleAdd(rule(netlink.FAMILY_V6)); err != nil {
			return err
		}
		cmd := exec.Command(copied, "-test.run=^TestFindWithoutRights$", "-test.v")
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), "BYPASS_TEST_UNPRIVILEGED=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		for _, want := range []string{
			"found: IPv6 policy routing\n",
			"cannot read the nftables rules: run as root or with CAP_NET_ADMIN",
		} {
			if !strings.Contains(string(out), want) {
				t.Errorf("without rights the answer is %s, without %q", out, want)
			}
		}
		return nil
	})
}
