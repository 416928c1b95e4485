// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"strconv"
	"strings"
)

// overruns is how many packets the kernel has dropped for want of room that networks
// share. It counts none of what it cannot read.
//
// Frames wait for a processor in one queue for all networks (net.core.netdev_max_backlog).
// What a processor sends by ICMP, echo replies included, belongs to one socket for all
// networks: while some 170 messages of its wait, as for a neighbour that does not answer
// in one network, it sends none in any other.
func (l *Lab) overruns() uint64 {
	sum := parseOverruns(textOf("/proc/net/softnet_stat"))
	for _, name := range l.Nodes() {
		if n := l.Lookup(name); n != nil {
			_ = n.Do(func() error {
				sum += parseUnsent(textOf("/proc/thread-self/net/snmp"), textOf("/proc/thread-self/net/snmp6"))
				return nil
			})
		}
	}
	return sum
}

// textOf is what the file holds, nothing if it cannot be read.
func textOf(file string) string {
	text, _ := os.ReadFile(file)
	return string(text)
}

// parseOverruns sums the second column of softnet_stat, which has a line for each
// processor, in hexadecimal.
func parseOverruns(text string) (sum uint64) {
	for cpu := range strings.Lines(text) {
		if fields := strings.Fields(cpu); len(fields) > 1 {
			dropped, _ := strconv.ParseUint(fields[1], 16, 32)
			sum += dropped
		}
	}
	return sum
}

// parseUnsent sums the OutErrors of ICMP (RFC 4293, icmpStatsOutErrors) in snmp, where a
// line of names stands above one of values, and in snmp6, which has a line for each.
func parseUnsent(snmp, snmp6 string) (sum uint64) {
	var names []string
	for line := range strings.Lines(snmp) {
		fields := strings.Fields(line)
		for i := range min(len(fields), len(names)) {
			if fields[0] == "Icmp:" && names[i] == "OutErrors" {
				n, _ := strconv.ParseUint(fields[i], 10, 64)
				sum += n
			}
		}
		names = fields
	}
	for line := range strings.Lines(snmp6) {
		if text, is := strings.CutPrefix(line, "Icmp6OutErrors"); is {
			n, _ := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
			sum += n
		}
	}
	return sum
}
