// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/netattr"
)

// registered is a function that netfilter calls at a hook.
type registered struct {
	function, module string
	kind             uint32
}

// Attributes and kinds of the list of hooks (linux/netfilter/nfnetlink_hook.h).
const (
	hookGet = 0

	nfnlaHookNum       = 1
	nfnlaHookFunction  = 4
	nfnlaHookModule    = 5
	nfnlaHookChainInfo = 6
	nfnlaHookInfoType  = 2

	hookTypeBPF = 2
)

// countFile holds how many connections are tracked. It exists in every namespace
// once the kernel can track.
const countFile = "/proc/sys/net/netfilter/nf_conntrack_count"

// findHooks looks for users of netfilter that are no firewall rules: connection
// tracking, load balancers, BPF programs. Where the kernel cannot list its hooks,
// tracking is known by the connections that it tracks.
func findHooks(q Query) ([]Finding, error) {
	var found []Finding
	for _, h := range q.netfilterHooks() {
		num := make([]byte, 4)
		binary.BigEndian.PutUint32(num, h.number)
		msgs, err := dump(unix.NFNL_SUBSYS_HOOK, hookGet, h.family, nl.NewRtAttr(nfnlaHookNum, num))
		if errors.Is(err, errMissing) {
			return trackedConnections()
		}
		if err != nil {
			return found, unread("the netfilter hooks", err)
		}
		for _, msg := range msgs {
			if f, ok := parseRegistered(msg).finding(hookName(h.number)); ok {
				found = append(found, f)
			}
		}
	}
	return found, nil
}

// parseRegistered reads a message about a hook.
func parseRegistered(msg []byte) (r registered) {
	if len(msg) < lenNfgenmsg {
		return r
	}
	for attr, value := range netattr.All(msg[lenNfgenmsg:]) {
		switch attr {
		case nfnlaHookFunction:
			r.function = text(value)
		case nfnlaHookModule:
			r.module = text(value)
		case nfnlaHookChainInfo:
			for attr, value := range netattr.All(value) {
				if attr == nfnlaHookInfoType {
					r.kind = number(value)
				}
			}
		}
	}
	return r
}

// judgedElsewhere are functions whose rules are read themselves, functions that
// put fragments together, which are never redirected, and those of security
// modules, which look at labels that packets of others do not bear.
var judgedElsewhere = []string{
	"nft_", "nf_flow_offload", "iptable_", "ip6table_", "ipt_", "ip6t_",
	"ipv4_conntrack_defrag", "ipv6_defrag", "selinux_", "smack_", "apparmor_",
}

// trackers are functions of connection tracking.
var trackers = []string{"ipv4_conntrack_", "ipv6_conntrack_", "nf_confirm", "nf_ct_", "nf_nat_"}

// tracked says that connections are tracked, whoever wants it.
const tracked = "the kernel tracks connections in this network namespace, and would lose sight of redirected flows"

// finding says what a function would do with packets.
func (r registered) finding(at string) (Finding, bool) {
	switch {
	case r.kind == hookTypeBPF:
		return Finding{
			What:   "a BPF program at netfilter",
			Detail: "it looks at packets at " + at,
			Remedy: fmt.Sprintf("Detach it (bpftool link list), %s.", choose),
		}, true
	case r.kind != 0 || r.function == "" || beginsWith(r.function, judgedElsewhere):
		return Finding{}, false
	case beginsWith(r.function, trackers):
		return tracking(tracked), true
	}
	by := r.function
	if r.module != "" {
		by = r.module
	}
	return Finding{
		What:   "the kernel's " + by,
		Detail: fmt.Sprintf("it looks at packets at %s, by the function %s", at, r.function),
		Remedy: fmt.Sprintf("Stop using it, %s.", choose),
	}, true
}

func beginsWith(s string, beginnings []string) bool {
	for _, b := range beginnings {
		if strings.HasPrefix(s, b) {
			return true
		}
	}
	return false
}

// trackedConnections reports whether any connection is tracked.
func trackedConnections() ([]Finding, error) {
	b, err := os.ReadFile(countFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unread(countFile, err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || n == 0 {
		return nil, nil
	}
	return []Finding{tracking(tracked)}, nil
}
