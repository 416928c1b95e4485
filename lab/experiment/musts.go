// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab/report"
)

// Names of figures that have a must.
const (
	figureStartDual     = "process start to address, server with two addresses"
	figureStartSingle   = "process start to address, server with one address"
	figureFirstOut      = "first packet out, cold, until its answer is back"
	figurePairs         = "pairs of 25 that connect"
	figureSixPairs      = "pairs of 36 that connect"
	figureFallback      = "pairs of 25 that connect, with the fall-back"
	figureSixFallback   = "pairs of 36 that connect, with the fall-back"
	figureOneNAT        = "two clients behind one NAT without hairpinning, until the first answer"
	figureHostsOutLost  = "lost of all pings to the IPv6 host"
	figureHostsInLost   = "lost of all pings from the IPv6 host"
	figureHostsFirstOut = "lost first pings to the IPv6 host"
	figureHostsFirstIn  = "lost first pings from the IPv6 host"
	figurePoliced       = "what passes of UDP at twice the rate"
	figureKernel        = "XDP / kernel forwarding, packets per second"
	figureMiredo        = "XDP / Miredo, packets per second"
	figureMemory        = "memory for a million peers"
	figureRandom        = "packets per second at a million random peers / at one"
	figureOverload      = "delivered rate at the highest load / peak rate"
	figureGoodLost      = "of good packets beside strangers lost"
	figureNewClient     = "first packet of a new client beside strangers"
	figureRestart       = "packets lost by established peers"
	figureClientTC      = "tc client / plain IPv6"
	figureClientUser    = "user-space client / Miredo"
	figureCostEncap     = "cost of the program, encapsulation"
	figureCostDecap     = "cost of the program, decapsulation"
	figureUser          = "Isthmus user space / Miredo, packets per second"
	figureLatencyTC     = "tc / kernel forwarding, median latency"
	figureLatencyXDP    = "XDP / kernel forwarding, median latency"
	figureLatencyMiredo = "Miredo / Isthmus, median latency"
	figureLatencyUser   = "Isthmus user space / Miredo, median latency"
	figurePeersMemory   = "memory beyond the empty process"
	figureLookup        = "look-up at random, median"
	figurePause         = "longest pause"
	figureFloodLost     = "good packets lost" // beside each flood

	figureRoundTrip  = "round trip / forwarding"
	figureAdded      = "round trip added over forwarding"
	figureTaygaAdded = "added by tayga / added by Isthmus"

	figureStream              = "bandwidth / forwarding"
	figureStreamOffloads      = "bandwidth / forwarding, with offloads"
	figureStreamPlain         = "bandwidth / forwarding, without offloads"
	figureStreamTaygaOffloads = "bandwidth / tayga, with offloads"
	figureStreamTayga         = "bandwidth / tayga, without offloads"

	figureRateTC       = "tc / forwarding, packets per second"
	figureRateXDP      = "XDP / forwarding, packets per second"
	figureSessionBytes = "bytes of a session with its binding, at a million"
	figureNewUDP       = "new UDP sessions per second on one core"
	figureNewTCP       = "TCP connections opened and closed per second on one core"
	figureExpiry       = "all sessions gone, after their time"
	figureCostNAT64    = "cost of the program"

	figureFlowsLost    = "long flows lost"
	figureOctetsWrong  = "octets wrong"
	figureStartsFailed = "starts that failed"
	figureLeft         = "things left behind"
	figureFilesMore    = "files open in the last process, beyond those of the first"
	figureRoutinesMore = "goroutines of the last process, beyond those of the first"
	figureMemoryGrown  = "memory of the last process / of the first"
	figureSilence      = "longest silence of a long flow"
	figureShortFailed  = "short flows that failed"

	figureOsmoDown    = "Isthmus user space / osmo-ggsn, packets per second to terminals"
	figureOsmoUp      = "Isthmus user space / osmo-ggsn, packets per second from terminals"
	figureOsmoForward = "Isthmus user space / kernel forwarding, packets per second"
	figureOsmoLatency = "Isthmus user space / osmo-ggsn, median latency"

	figureGTPUTC  = "Isthmus tc / kernel forwarding, packets per second"
	figureGTPUXDP = "Isthmus XDP / kernel forwarding, packets per second"

	figureContexts      = "contexts created and deleted in a second of the GGSN's processor"
	figureAuthenticated = "contexts created with RADIUS authentication in a second of the GGSN's processor"
	figureAccounted     = "contexts created with RADIUS authentication and accounting in a second of the GGSN's processor"
	figureCreates       = "created in a second"
	figureDeletes       = "deleted in a second"
	figureAttach4       = "from the request to the address"
	figureAttach6       = "from the request to the advertised address"

	figureLAN         = "LAN address change: time to recovery"
	figureNATChange   = "NAT address change: time to recovery"
	figureServerDeath = "server death: time to recovery"
	figureSoft        = "soft move to a standby interface: packets lost"
	figureHard        = "hard move to a standby interface: gap beyond a round trip"

	figureReinvite   = "change to the re-INVITE on the wire, 99 % of all moves"
	figureBindings   = "bindings left after a move"
	figureBYE        = "BYE that reaches the side that has moved"
	figureHardDown   = "hard move, 50 ms: gap to the terminal beyond a round trip"
	figureHardUp     = "hard move, 50 ms: gap from the terminal"
	figureSoftLost   = "soft move, 50 ms: most packets lost"
	figureSoftGap    = "soft move, 50 ms: gap, the longer way"
	figureLossyLatch = "hard move, 50 ms, 20 % of SIP lost: gap of 95 % of moves, latching"
	figureLossyPlain = "hard move, 50 ms, 20 % of SIP lost: gap of 95 % of moves, no latching"

	figureColdDown        = "cold: gap to the terminal beyond theory"
	figureColdUp          = "cold: gap from the terminal beyond theory"
	figureWarmDown        = "pre-qualified: gap to the terminal beyond theory"
	figureWarmUp          = "pre-qualified: gap from the terminal beyond theory"
	figureHandoffLost     = "soft, either way: most packets lost"
	figureHandoffBindings = "bindings left after a handoff"
	figureHandoffAlive    = "handoffs in a row, 5 % of everything lost, with the call alive behind"
	figureHandoffSingle   = "handoffs in a row, 5 % of everything lost, with one binding behind"

	figureHandoffUnreached = "calls to the terminal right behind each of these that did not come"

	figureCallsFailed  = "calls that failed, at 100 a second"
	figureRegisters    = "Isthmus / Kamailio, registrations in a second of the server's processor"
	figureSmallFlock   = "move at once, 50 ms: change to the last 200 beyond a round trip"
	figureFlock        = "move at once, 50 ms: change to the last 200"
	figureFlockDropped = "move at once: calls dropped"

	figureSeamlessDown  = "%v: gap to the terminal beyond %s"
	figureSeamlessUp    = "%v: gap from the terminal beyond %s"
	figureSeamlessMPTCP = "%v: MPTCP's gap / ours"
	figureSeamlessBack  = "return to WLAN: first data beyond two of its round trips, once the port is open"
	figureSeamlessAlive = "handovers of %d in a row, 1 %% of all packets lost, that the association survives"

	figureTestbedPassed = "packets that pass after logoff, and with a revoked, an expired or a stranger's certificate"
	figureTestbedUp     = "from nothing to a terminal that has both networks"

	figureBillLess    = "octets of the generator that are not on the bill"
	figureBillMore    = "octets on the bill that are not the generator's"
	figureBillCharge  = "octets by which charging records and RADIUS accounts differ"
	figureBillNobodys = "records of nobody"

	figureBooksCarried   = "octets of the generator that the SGSN has not carried, and of IPv4 those that nobody has sent"
	figureBooksRADIUS    = "octets by which SGSN and RADIUS accounts differ"
	figureBooksStatus    = "octets by which SGSN and status differ"
	figureBooksAddresses = "sessions with other addresses or prefixes in their last record than the terminal had"
	figureBooksStops     = "sessions that have ended without a Stop"
	figureBooksLost      = "records lost, altered or not due"
	figureBooksInterim   = "octets that Interim-Updates have not told, of those before, or that nobody has sent"

	figureSCTPLaw           = "clocks, the worst: off the law, of a round trip and 5 % of the law"
	figureSCTPStrict        = "silent cut, by RFC 7829: gap beyond RTO.Min and a round trip of the new way"
	figureSCTPEarly         = "silent cut, early probe: gap beyond two round trips of the new way"
	figureSCTPAlive         = "cuts of %d in a row, server with one address, that the association survives"
	figureSCTPMPTCP         = "silent cut, server with one address: MPTCP's gap / ours"
	figureSCTPWrong         = "messages lost, or not in their order"
	figureSCTPRate          = "Isthmus / usrsctp"
	figureSCTPLossy         = "Isthmus / usrsctp, with loss"
	figureSCTPBesideTCP     = "Isthmus beside TCP Reno: share of the line"
	figureSCTPBesideUsrsctp = "Isthmus beside usrsctp: share of the line"

	figureTransportWLAN = "SCTP / TCP Reno, throughput on the full WLAN"
	figureTransportUMTS = "SCTP / TCP Reno, throughput on the full UMTS"
	figureSpurious      = "SCTP on UMTS: spurious retransmissions"
	figureLikeDelay     = "our generator and d-itg's at 100 ms: mean delays apart"
	figureLikeJitter    = "our generator and d-itg's at 100 ms: jitters apart"

	figureOwnStreamPaced = "99 % of control messages beside paced data, one stream / a stream of their own"
	figureOwnStreamBulk  = "99 % of control messages beside data as fast as it goes, one stream / a stream of their own"
)

// Bound is the must of one figure of one experiment.
type Bound struct {
	Experiment, Figure string
	Must               report.Must
}

// Musts is the table of all bounds. A figure outside its bound is printed with
// MISS.
var Musts = slices.Concat([]Bound{
	{"teredo-start", figureStartDual, report.Must{Bound: 20}},   // ms
	{"teredo-start", figureStartSingle, report.Must{Bound: 20}}, // ms
	{"teredo-start", figureFirstOut, report.Must{Bound: 3}},     // round trips between client and host
	{"nat-matrix", figurePairs, report.Must{AtLeast: true, Bound: 19}},
	{"nat-matrix", figureSixPairs, report.Must{AtLeast: true, Bound: 27}},
	{"nat-matrix", figureFallback, report.Must{AtLeast: true, Bound: 25}},
	{"nat-matrix", figureSixFallback, report.Must{AtLeast: true, Bound: 36}},
	{"nat-matrix", figureOneNAT, report.Must{Bound: 1000}}, // ms
	{"nat-matrix", figureHostsOutLost, report.Must{Bound: 0}},
	{"nat-matrix", figureHostsInLost, report.Must{Bound: 0}},
	{"nat-matrix", figureHostsFirstOut, report.Must{Bound: 0}},
	{"nat-matrix", figureHostsFirstIn, report.Must{Bound: 0}},
	{"teredo-handoff", figureLAN, report.Must{Bound: 0.1}},       // s
	{"teredo-handoff", figureNATChange, report.Must{Bound: 5}},   // s
	{"teredo-handoff", figureServerDeath, report.Must{Bound: 5}}, // s
	{"teredo-handoff", figureSoft, report.Must{Bound: 0}},
	{"teredo-handoff", figureHard, report.Must{Bound: 20}}, // ms
	{throughputName, figureKernel, report.Must{AtLeast: true, Bound: 1.8}},
	{throughputName, figureMiredo, report.Must{AtLeast: true, Bound: 2.5}},
	{throughputName, figureUser, report.Must{AtLeast: true, Bound: 1}},
	{throughputName, figureMemory, report.Must{Bound: 64}}, // MB
	{throughputName, figureRandom, report.Must{AtLeast: true, Bound: 0.6}},
	{overloadName, figureOverload, report.Must{AtLeast: true, Bound: 0.9}},
	{overloadName, figureGoodLost, report.Must{Bound: 0.1}}, // percent
	{overloadName, figureNewClient, report.Must{Bound: 1}},  // s
	{restartName, figureRestart, report.Must{Bound: 0}},
	{clientName, figureClientTC, report.Must{AtLeast: true, Bound: 0.4}},
	{clientName, figureClientUser, report.Must{AtLeast: true, Bound: 1.5}},
	{costName, figureCostEncap, report.Must{Bound: 110}}, // ns
	{costName, figureCostDecap, report.Must{Bound: 90}},  // ns
	{latencyName, figureLatencyTC, report.Must{Bound: 1}},
	{latencyName, figureLatencyXDP, report.Must{Bound: 1.3}},
	{latencyName, figureLatencyMiredo, report.Must{AtLeast: true, Bound: 6}},
	{latencyName, figureLatencyUser, report.Must{Bound: 1.5}},
	{peersName, figurePeersMemory, report.Must{Bound: 64}}, // MiB
	{peersName, figureLookup, report.Must{Bound: 200}},     // ns
	{peersName, figurePause, report.Must{Bound: 2}},        // ms
	{peersName, figureFloodLost, report.Must{Bound: 0}},
	{naptLatencyName, figureRoundTrip, report.Must{Bound: 1.3}},
	{naptLatencyName, figureAdded, report.Must{Bound: 1}}, // µs
	{naptLatencyName, figureTaygaAdded, report.Must{AtLeast: true, Bound: 10}},
	{naptBandwidthName, figureStreamOffloads, report.Must{AtLeast: true, Bound: 0.9}},
	{naptBandwidthName, figureStreamPlain, report.Must{AtLeast: true, Bound: 0.85}},
	{naptBandwidthName, figureStreamTaygaOffloads, report.Must{AtLeast: true, Bound: 12}},
	{naptBandwidthName, figureStreamTayga, report.Must{AtLeast: true, Bound: 3.5}},
	{scaleName, figureRateTC, report.Must{AtLeast: true, Bound: 0.8}},
	{scaleName, figureRateXDP, report.Must{AtLeast: true, Bound: 1.5}},
	{scaleName, figureSessionBytes, report.Must{Bound: 256}},
	{scaleName, figureNewUDP, report.Must{AtLeast: true, Bound: 200}}, // thousands
	{scaleName, figureNewTCP, report.Must{AtLeast: true, Bound: 50}},  // thousands
	{scaleName, figureExpiry, report.Must{Bound: 10}},                 // s
	{natCostName, figureCostNAT64, report.Must{Bound: 160}},           // ns
	{siitCostName, figureRoundTrip, report.Must{Bound: 1.3}},
	{siitCostName, figureAdded, report.Must{Bound: 1}}, // µs
	{siitCostName, figureRateTC, report.Must{AtLeast: true, Bound: 0.8}},
	{siitCostName, figureRateXDP, report.Must{AtLeast: true, Bound: 1.5}},
	{siitCostName, figureStreamOffloads, report.Must{AtLeast: true, Bound: 0.9}},
	{siitCostName, figureStreamPlain, report.Must{AtLeast: true, Bound: 0.85}},
	{attachName, figureAttach4, report.Must{Bound: 5}},                         // ms
	{attachName, figureAttach6, report.Must{Bound: 10}},                        // ms
	{qosName, figurePoliced, report.Must{AtLeast: true, Bound: 95, Most: 105}}, // % of the rate
	{attachName, figureAuthenticated, report.Must{AtLeast: true, Bound: 5000}},
	{attachName, figureContexts, report.Must{AtLeast: true, Bound: 20_000}},
	{gtpuThroughputName, figureOsmoDown, report.Must{AtLeast: true, Bound: 2}},
	{gtpuThroughputName, figureOsmoUp, report.Must{AtLeast: true, Bound: 1.5}},
	{gtpuThroughputName, figureOsmoForward, report.Must{AtLeast: true, Bound: 0.5}}, // of 1280 bytes
	{gtpuThroughputName, figureGTPUTC, report.Must{AtLeast: true, Bound: 0.8}},
	{gtpuThroughputName, figureGTPUXDP, report.Must{AtLeast: true, Bound: 1}},
	{gtpuLatencyName, figureOsmoLatency, report.Must{Bound: 1.2}},
	{sipMobilityName, figureReinvite, report.Must{Bound: 2}}, // ms
	{sipMobilityName, figureBindings, report.Must{AtLeast: true, Bound: 1, Most: 1}},
	{sipMobilityName, figureBYE, report.Must{AtLeast: true, Bound: 100}}, // %
	{sipMobilityName, figureHardDown, report.Must{Bound: 35}},            // ms
	{sipMobilityName, figureHardUp, report.Must{Bound: 25}},              // ms
	{sipMobilityName, figureSoftLost, report.Must{Bound: 0}},
	{sipMobilityName, figureSoftGap, report.Must{Bound: 30}},      // ms
	{sipMobilityName, figureLossyLatch, report.Must{Bound: 300}},  // ms
	{sipMobilityName, figureLossyPlain, report.Must{Bound: 1200}}, // ms
	{handoffName, figureColdDown, report.Must{Bound: 60}},         // ms
	{handoffName, figureColdUp, report.Must{Bound: 60}},           // ms
	{handoffName, figureWarmDown, report.Must{Bound: 60}},         // ms, beyond a round trip
	{handoffName, figureWarmUp, report.Must{Bound: 60}},           // ms
	{handoffName, figureHandoffLost, report.Must{}},
	{handoffName, figureHandoffBindings, report.Must{AtLeast: true, Bound: 1, Most: 1}},
	{handoffName, figureHandoffAlive, report.Must{AtLeast: true, Bound: 100}},  // %
	{handoffName, figureHandoffSingle, report.Must{AtLeast: true, Bound: 100}}, // %
	{handoffName, figureHandoffUnreached, report.Must{}},
	{sipLoadName, figureCallsFailed, report.Must{}},
	{sipLoadName, figureRegisters, report.Must{AtLeast: true, Bound: 0.3}},
	{sipLoadName, figureSmallFlock, report.Must{Bound: 50}}, // ms
	{sipLoadName, figureFlock, report.Must{Bound: 1000}},    // ms
	{sipLoadName, figureFlockDropped, report.Must{}},
	{sctpSeamlessName, "announced, break before make: gap to the terminal beyond a round trip", report.Must{Bound: 50}},        // ms
	{sctpSeamlessName, "announced, break before make: gap from the terminal beyond half a round trip", report.Must{Bound: 50}}, // ms
	{sctpSeamlessName, "announced, make before break: gap to the terminal beyond half a round trip", report.Must{Bound: 50}},   // ms
	{sctpSeamlessName, "announced, make before break: gap from the terminal beyond half a round trip", report.Must{Bound: 50}}, // ms
	{sctpSeamlessName, "silent: gap to the terminal beyond two round trips", report.Must{Bound: 50}},                           // ms
	{sctpSeamlessName, "silent: MPTCP's gap / ours", report.Must{AtLeast: true, Bound: 0.7}},
	{sctpSeamlessName, "announced, break before make: MPTCP's gap / ours", report.Must{AtLeast: true, Bound: 1}},
	{sctpSeamlessName, figureSeamlessBack, report.Must{Bound: 20}}, // ms
	{sctpSeamlessName, figureSeamlessAlive, report.Must{AtLeast: true, Bound: 100}},
	{sctpSeamlessName, figureSCTPWrong, report.Must{}},
	{accountingName, figureBooksCarried, report.Must{}},
	{accountingName, figureBooksRADIUS, report.Must{}},
	{accountingName, figureBillCharge, report.Must{}},
	{accountingName, figureBooksStatus, report.Must{}},
	{accountingName, figureBooksAddresses, report.Must{}},
	{accountingName, figureBooksStops, report.Must{}},
	{accountingName, figureBooksLost, report.Must{}},
	{accountingName, figureBooksInterim, report.Must{}},
	{testbedBillName, figureBillLess, report.Must{}},
	{testbedBillName, figureBillCharge, report.Must{}},
	{testbedBillName, figureBillNobodys, report.Must{}},
	{testbedName, figureTestbedPassed, report.Must{}},
	{testbedStatedName, figureTestbedPassed, report.Must{}},
	{testbedName, figureTestbedUp, report.Must{Bound: 20}},       // s
	{testbedStatedName, figureTestbedUp, report.Must{Bound: 20}}, // s
	{sctpFailoverName, figureSCTPLaw, report.Must{Bound: 1}},
	{sctpFailoverName, figureSCTPStrict, report.Must{Bound: 100}}, // ms
	{sctpFailoverName, figureSCTPEarly, report.Must{Bound: 50}},   // ms
	{sctpFailoverName, figureSCTPAlive, report.Must{AtLeast: true, Bound: 100}},
	{sctpFailoverName, figureSCTPMPTCP, report.Must{AtLeast: true, Bound: 0.7}},
	{sctpFailoverName, figureSCTPWrong, report.Must{}},
	{sctpThroughputName, figureSCTPRate, report.Must{AtLeast: true, Bound: 0.7}},
	{sctpThroughputName, figureSCTPLossy, report.Must{AtLeast: true, Bound: 0.8}},
	{sctpFairnessName, figureSCTPBesideTCP, report.Must{AtLeast: true, Bound: 40, Most: 60}},     // %
	{sctpFairnessName, figureSCTPBesideUsrsctp, report.Must{AtLeast: true, Bound: 40, Most: 60}}, // %
	{sctpTransportsName, figureTransportWLAN, report.Must{AtLeast: true, Bound: 0.95}},
	{sctpTransportsName, figureTransportUMTS, report.Must{AtLeast: true, Bound: 0.95}},
	{sctpTransportsName, figureSpurious, report.Must{Bound: 1}},     // %
	{sctpTransportsName, figureLikeDelay, report.Must{Bound: 2}},    // %
	{sctpTransportsName, figureLikeJitter, report.Must{Bound: 0.1}}, // ms
	{sctpStreamsName, figureOwnStreamPaced, report.Must{AtLeast: true, Bound: 2}},
	{sctpStreamsName, figureOwnStreamBulk, report.Must{AtLeast: true, Bound: 2}},
}, faultsMusts(natFaultsName), faultsMusts(relayFaultsName), faultsMusts(ggsnFaultsName))

// faultsMusts are the bounds of campaigns.
func faultsMusts(experiment string) []Bound {
	return []Bound{
		{experiment, figureFlowsLost, report.Must{}},
		{experiment, figureOctetsWrong, report.Must{}},
		{experiment, figureStartsFailed, report.Must{}},
		{experiment, figureLeft, report.Must{}},
		{experiment, figureFilesMore, report.Must{}},
		{experiment, figureRoutinesMore, report.Must{}},
		{experiment, figureMemoryGrown, report.Must{Bound: 1.5}},
		{experiment, figureSilence, report.Must{Bound: 30}},      // s
		{experiment, figureShortFailed, report.Must{Bound: 0.1}}, // %
	}
}

// must looks a bound up. A name that is not in the table is a mistake in the
// program: the figure would pass unjudged.
func must(experiment, figure string) *report.Must {
	for _, b := range Musts {
		if b.Experiment == experiment && b.Figure == figure {
			return &b.Must
		}
	}
	panic(fmt.Sprintf("no must for %q of %s", figure, experiment))
}
