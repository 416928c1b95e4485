// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/netattr"
)

// Barrier is a chain of the host's firewall that drops what this host forwards.
type Barrier struct {
	// Chain names it: "chain forward of table inet filter".
	Chain string
	// All says that nothing there accepts a packet. Otherwise some rule may, and which
	// packets that are is not known.
	All bool
}

// Barriers lists the chains at the hook "forward" that drop what no rule of theirs accepts,
// in the calling thread's network namespace. An error says what could not be read.
func Barriers() ([]Barrier, error) {
	barriers, err := barriersNFT()
	legacy, errLegacy := barriersLegacy()
	return append(barriers, legacy...), errors.Join(err, errLegacy)
}

// tableName names a table of nftables, chainName a chain.
type (
	tableName struct {
		family uint8
		table  string
	}
	chainName struct {
		tableName
		chain string
	}
)

// barriersNFT lists those of nftables.
func barriersNFT() ([]Barrier, error) {
	chains, err := dump(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC)
	if errors.Is(err, errMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, unread("the nftables rules", err)
	}
	rules, err := dump(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETRULE, unix.NFPROTO_UNSPEC)
	if err != nil {
		return nil, unread("the nftables rules", err)
	}
	accepting := map[tableName]bool{}
	shut := map[chainName]bool{}
	for _, msg := range rules {
		e := parseEffect(msg)
		accepting[e.of.tableName] = accepting[e.of.tableName] || e.mayAccept
		shut[e.of] = shut[e.of] || e.dropsAll
	}
	var list []Barrier
	for _, msg := range chains {
		c, ok := parseChain(msg)
		at := chainName{tableName{c.family, c.table}, c.name}
		if !ok || c.hook != unix.NF_INET_FORWARD || !slices.Contains(forwarders, c.family) || !c.drops && !shut[at] {
			continue
		}
		list = append(list, Barrier{
			Chain: fmt.Sprintf("chain %s of table %s %s", c.name, familyName(c.family), c.table),
			All:   !accepting[at.tableName],
		})
	}
	return list, nil
}

// forwarders are the families whose chains see what is forwarded.
var forwarders = []uint8{unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}

// effect is what a rule of nftables does, whichever packets it is for.
type effect struct {
	of        chainName
	mayAccept bool
	dropsAll  bool // there is no packet that it is not for
}

// NF_DROP and NF_ACCEPT.
const verdictDrop, verdictAccept = 0, 1

// Expressions that may end in any verdict, and those that every packet passes.
var (
	deciding = []string{"lookup", "target", "queue", "synproxy", "flow_offload"}
	passing  = []string{"counter", "log"}
)

// parseEffect reads a message about a rule.
func parseEffect(msg []byte) (e effect) {
	if len(msg) < lenNfgenmsg {
		return e
	}
	e.of.family = msg[0]
	drops, conditional := false, false
	for attr, value := range netattr.All(msg[lenNfgenmsg:]) {
		switch attr {
		case unix.NFTA_RULE_TABLE:
			e.of.table = text(value)
		case unix.NFTA_RULE_CHAIN:
			e.of.chain = text(value)
		case unix.NFTA_RULE_EXPRESSIONS:
			for _, expression := range netattr.All(value) {
				name, verdict, decided := parseVerdict(expression)
				switch {
				case decided && verdict == verdictAccept, slices.Contains(deciding, name):
					e.mayAccept = true
				case decided && verdict == verdictDrop, name == "reject":
					drops = true
				case !slices.Contains(passing, name):
					conditional = true
				}
			}
		}
	}
	e.dropsAll = drops && !conditional && !e.mayAccept
	return e
}

// parseVerdict reads an expression; decided if it is a verdict.
func parseVerdict(b []byte) (name string, verdict uint32, decided bool) {
	var data []byte
	for attr, value := range netattr.All(b) {
		switch attr {
		case unix.NFTA_EXPR_NAME:
			name = text(value)
		case unix.NFTA_EXPR_DATA:
			data = value
		}
	}
	if name != "immediate" {
		return name, 0, false
	}
	code, decided := descend(data, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CODE)
	return name, number(code), decided
}

// descend follows a path of attributes into each other.
func descend(b []byte, path ...uint16) (value []byte, ok bool) {
	if len(path) == 0 {
		return b, true
	}
	for attr, inner := range netattr.All(b) {
		if attr == path[0] {
			return descend(inner, path[1:]...)
		}
	}
	return nil, false
}

// barriersLegacy lists those of the old iptables, whose table filter alone drops.
func barriersLegacy() (list []Barrier, err error) {
	for i := range legacyFamilies {
		f := &legacyFamilies[i]
		tables, err := f.tables()
		if errors.Is(err, os.ErrPermission) || !slices.Contains(tables, "filter") {
			continue
		}
		info, entries, err := f.read("filter")
		if err != nil {
			return list, unread("the "+f.command+" table filter", err)
		}
		if !f.accepts(entries, info.Underflow[unix.NF_INET_FORWARD]) {
			list = append(list, Barrier{
				Chain: "chain FORWARD of " + f.command,
				All:   info.HookEntry[unix.NF_INET_FORWARD] == info.Underflow[unix.NF_INET_FORWARD],
			})
		}
	}
	return list, nil
}
