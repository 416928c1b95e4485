// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/netattr"
)

// chain is a base chain of nftables, one that netfilter calls.
type chain struct {
	family      uint8
	table, name string
	hook        uint32
	devices     []deviceName
	drops       bool   // by its policy
	rules       uint32 // no one else can use a base chain
}

// findRulesets looks for nftables chains that do anything, flowtables of the
// devices, and rules that need connection tracking.
func findRulesets(q Query) ([]Finding, error) {
	chains, err := dump(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC)
	if errors.Is(err, errMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, unread("the nftables rules", err)
	}
	var found []Finding
	for _, msg := range chains {
		if c, ok := parseChain(msg); ok {
			if f, ok := c.finding(q); ok {
				found = append(found, f)
			}
		}
	}
	flowtables, err := findFlowtables(q)
	if err != nil {
		return found, err
	}
	tracking, err := findTrackingRules()
	return append(append(found, flowtables...), tracking...), err
}

// unread says that a thing could not be looked at.
func unread(what string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("cannot read %s: run as root or with CAP_NET_ADMIN: %w", what, err)
	}
	return fmt.Errorf("cannot read %s: %w", what, err)
}

// parseChain reads a message about a chain; ok if it is a base chain.
func parseChain(msg []byte) (c chain, ok bool) {
	if len(msg) < lenNfgenmsg {
		return c, false
	}
	c.family = msg[0]
	for attr, value := range netattr.All(msg[lenNfgenmsg:]) {
		switch attr {
		case unix.NFTA_CHAIN_TABLE:
			c.table = text(value)
		case unix.NFTA_CHAIN_NAME:
			c.name = text(value)
		case unix.NFTA_CHAIN_POLICY:
			c.drops = number(value) == 0 // NF_DROP
		case unix.NFTA_CHAIN_USE:
			c.rules = number(value)
		case unix.NFTA_CHAIN_HOOK:
			ok = true
			c.parseHook(value)
		}
	}
	return c, ok
}

// parseHook reads where a chain hangs.
func (c *chain) parseHook(b []byte) {
	for attr, value := range netattr.All(b) {
		switch attr {
		case unix.NFTA_HOOK_HOOKNUM:
			c.hook = number(value)
		case unix.NFTA_HOOK_DEV:
			c.devices = append(c.devices, deviceName{name: text(value)})
		case nftaHookDevs:
			c.devices = append(c.devices, deviceNames(value)...)
		}
	}
}

// finding says whether packets would meet the chain and what it would do.
func (c *chain) finding(q Query) (Finding, bool) {
	direction, at, met := c.met(q)
	if !met || c.rules == 0 && !c.drops {
		return Finding{}, false
	}
	var does []string
	if c.rules == 1 {
		does = append(does, "has 1 rule")
	} else if c.rules > 1 {
		does = append(does, fmt.Sprintf("has %d rules", c.rules))
	}
	if c.drops {
		does = append(does, "drops what no rule accepts")
	}
	return Finding{
		What: "an nftables chain at " + at,
		Detail: fmt.Sprintf("chain %s of table %s %s %s and looks at %s", c.name, familyName(c.family), c.table,
			strings.Join(does, ", "), direction),
		Remedy: fmt.Sprintf("Remove or empty it (nft delete chain %s %s %s), %s.", familyName(c.family), c.table, c.name, choose),
	}, true
}

// met reports which packets would meet the chain, and where.
func (c *chain) met(q Query) (direction, at string, ok bool) {
	switch c.family {
	case unix.NFPROTO_NETDEV:
		direction, ok = q.metDevice(c.hook, c.devices)
		return direction, [...]string{"ingress", "egress"}[min(c.hook, 1)], ok
	case unix.NFPROTO_INET:
		if c.hook == inetIngress {
			direction, ok = q.metDevice(unix.NF_NETDEV_INGRESS, c.devices)
			return direction, "ingress", ok
		}
		four, ok4 := q.met(hook{unix.NFPROTO_IPV4, c.hook})
		six, ok6 := q.met(hook{unix.NFPROTO_IPV6, c.hook})
		return widest(four, six), hookName(c.hook), ok4 || ok6
	}
	direction, ok = q.met(hook{c.family, c.hook})
	return direction, hookName(c.hook), ok
}

// widest joins two directions.
func widest(a, b string) string {
	switch {
	case a == "" || a == b:
		return b
	case b == "":
		return a
	}
	return bothWays
}

func hookName(number uint32) string {
	if int(number) < len(hookNames) {
		return hookNames[number]
	}
	return "an unknown hook"
}

// familyName is the word of nftables for a family.
func familyName(family uint8) string {
	switch family {
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_IPV6:
		return "ip6"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	}
	return "of another family"
}

// findFlowtables looks for flowtables that take packets of the devices.
func findFlowtables(q Query) ([]Finding, error) {
	msgs, err := dump(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETFLOWTABLE, unix.NFPROTO_UNSPEC)
	if errors.Is(err, errMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, unread("the nftables flowtables", err)
	}
	var found []Finding
	for _, msg := range msgs {
		if f, ok := flowtable(msg, q); ok {
			found = append(found, f)
		}
	}
	return found, nil
}

// flowtable judges a message about a flowtable.
func flowtable(msg []byte, q Query) (Finding, bool) {
	if len(msg) < lenNfgenmsg {
		return Finding{}, false
	}
	var table, name string
	var devices []deviceName
	for attr, value := range netattr.All(msg[lenNfgenmsg:]) {
		switch attr {
		case nftaFlowtableTable:
			table = text(value)
		case nftaFlowtableName:
			name = text(value)
		case nftaFlowtableHook:
			for attr, value := range netattr.All(value) {
				if attr == nftaFlowtableHookDevs {
					devices = deviceNames(value)
				}
			}
		}
	}
	if _, ok := q.metDevice(unix.NF_NETDEV_INGRESS, devices); !ok {
		return Finding{}, false
	}
	return Finding{
		What:   "an nftables flowtable",
		Detail: fmt.Sprintf("flowtable %s of table %s %s names a device of the fast path", name, familyName(msg[0]), table),
		Remedy: fmt.Sprintf("Remove it (nft delete flowtable %s %s %s), %s.", familyName(msg[0]), table, name, choose),
	}, true
}

// Expressions, and matches of iptables, that make the kernel track connections.
var (
	trackingExpressions = []string{"ct", "nat", "masq", "redir", "connlimit", "flow_offload", "synproxy"}
	trackingExtensions  = []string{
		"conntrack", "state", "ctstate", "helper", "connmark", "connbytes", "connlimit", "connlabel", "cluster",
		"SNAT", "DNAT", "MASQUERADE", "REDIRECT", "NETMAP", "CT", "CONNMARK", "CONNSECMARK", "SYNPROXY",
	}
)

// findTrackingRules looks for a rule, wherever it is, that makes the kernel track
// the connections of a whole family.
func findTrackingRules() ([]Finding, error) {
	msgs, err := dump(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETRULE, unix.NFPROTO_UNSPEC)
	if errors.Is(err, errMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, unread("the nftables rules", err)
	}
	for _, msg := range msgs {
		if table, chain, ok := tracks(msg); ok {
			return []Finding{tracking(fmt.Sprintf("a rule in chain %s of table %s %s needs it, and it would lose sight of redirected flows",
				chain, familyName(msg[0]), table))}, nil
		}
	}
	return nil, nil
}

// tracking is the finding that connections are tracked.
func tracking(detail string) Finding {
	return Finding{
		What:   "connection tracking",
		Detail: detail,
		Remedy: fmt.Sprintf("Remove the rules that need it (nft list ruleset, iptables-save), %s.", choose),
	}
}

// tracks reports whether a message is about a rule that needs connection tracking.
func tracks(msg []byte) (table, chain string, ok bool) {
	if len(msg) < lenNfgenmsg {
		return "", "", false
	}
	if f := msg[0]; f != unix.NFPROTO_INET && f != unix.NFPROTO_IPV4 && f != unix.NFPROTO_IPV6 {
		return "", "", false
	}
	for attr, value := range netattr.All(msg[lenNfgenmsg:]) {
		switch attr {
		case unix.NFTA_RULE_TABLE:
			table = text(value)
		case unix.NFTA_RULE_CHAIN:
			chain = text(value)
		case unix.NFTA_RULE_EXPRESSIONS:
			for _, expression := range netattr.All(value) {
				ok = ok || expressionTracks(expression)
			}
		}
	}
	return table, chain, ok
}

// expressionTracks judges one expression by its name, and one that wraps an
// extension of iptables by the extension's name.
func expressionTracks(b []byte) bool {
	var name, extension string
	for attr, value := range netattr.All(b) {
		switch attr {
		case unix.NFTA_EXPR_NAME:
			name = text(value)
		case unix.NFTA_EXPR_DATA:
			for attr, value := range netattr.All(value) {
				if attr == unix.NFTA_MATCH_NAME { // and NFTA_TARGET_NAME
					extension = text(value)
				}
			}
		}
	}
	if name == "match" || name == "target" {
		return slices.Contains(trackingExtensions, extension)
	}
	return slices.Contains(trackingExpressions, name)
}
