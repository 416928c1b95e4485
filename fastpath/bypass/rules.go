// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The policy rules that every network namespace begins with: priority and table.
var (
	defaults4 = map[int]int{0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN, 32767: unix.RT_TABLE_DEFAULT}
	defaults6 = map[int]int{0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN}
)

// DefaultRules reports whether a list of all policy rules of one family is the one
// that a network namespace begins with, so that routes depend on the destination
// alone.
func DefaultRules(rules []netlink.Rule) bool {
	want := len(defaults4)
	if len(rules) > 0 && rules[0].Family == netlink.FAMILY_V6 {
		want = len(defaults6)
	}
	return len(rules) == want && len(extraRules(rules)) == 0
}

// extraRules returns those that are not there from the beginning.
func extraRules(rules []netlink.Rule) []netlink.Rule {
	var extra []netlink.Rule
	seen := make(map[int]bool)
	for _, r := range rules {
		if !isDefault(r) || seen[r.Priority] {
			extra = append(extra, r)
		}
		seen[r.Priority] = true
	}
	return extra
}

// isDefault reports whether a rule is one of the beginning.
func isDefault(r netlink.Rule) bool {
	defaults := defaults4
	if r.Family == netlink.FAMILY_V6 {
		defaults = defaults6
	}
	if table, ok := defaults[r.Priority]; !ok || table != r.Table {
		return false
	}
	return r.Src == nil && r.Dst == nil && r.Mark == 0 && r.Mask == nil && r.Tos == 0 && r.TunID == 0 &&
		r.Goto < 0 && r.Flow < 0 && r.IifName == "" && r.OifName == "" && r.SuppressIfgroup < 0 &&
		r.SuppressPrefixlen < 0 && !r.Invert && r.Dport == nil && r.Sport == nil && r.IPProto == 0 && r.UIDRange == nil
}

// rulesOf lists the rules of a family, again if they change meanwhile.
func rulesOf(family int) (rules []netlink.Rule, err error) {
	for range dumpAttempts {
		if rules, err = netlink.RuleList(family); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return rules, err
}

// findRules looks for policy routing of both families.
func findRules(Query) ([]Finding, error) {
	var found []Finding
	var errs []error
	for _, f := range []struct {
		family  int
		name    string
		command string
	}{
		{netlink.FAMILY_V4, "IPv4", "ip rule"},
		{netlink.FAMILY_V6, "IPv6", "ip -6 rule"},
	} {
		rules, err := rulesOf(f.family)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a kernel without policy routing, or without IPv6
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot read the %s policy rules: %w", f.name, err))
			continue
		}
		if extra := extraRules(rules); len(extra) > 0 {
			found = append(found, Finding{
				What:   f.name + " policy routing",
				Detail: fmt.Sprintf("there %s beyond the kernel's own, first that of priority %d%s", count(len(extra), "policy rule", "policy rules"), extra[0].Priority, selector(extra[0])),
				Remedy: fmt.Sprintf("Remove them (%s), %s.", f.command, choose),
			})
		}
	}
	return found, errors.Join(errs...)
}

// selector names what a rule asks for, in the words of ip-rule.
func selector(r netlink.Rule) string {
	var words []string
	if r.Src != nil {
		words = append(words, "from "+r.Src.String())
	}
	if r.Dst != nil {
		words = append(words, "to "+r.Dst.String())
	}
	if r.IifName != "" {
		words = append(words, "iif "+r.IifName)
	}
	if r.OifName != "" {
		words = append(words, "oif "+r.OifName)
	}
	if r.Mark != 0 || r.Mask != nil {
		words = append(words, fmt.Sprintf("fwmark %#x", r.Mark))
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, " ") + ")"
}

// count puts a number before a noun, with its verb.
func count(n int, one, many string) string {
	if n == 1 {
		return "is 1 " + one
	}
	return fmt.Sprintf("are %d %s", n, many)
}
