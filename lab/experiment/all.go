// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import "github.com/isthmus-net/isthmus/lab"

// natPrograms are what NAT boxes need.
var natPrograms = []string{"nft"}

// All lists the experiments in the order in which they are shown.
var All = []lab.Experiment{
	callTour,
	{
		Name:    tourName,
		Summary: "the tour: an IPv4-only host behind a NAT gets IPv6, reaches a host and is reached",
		Needs:   natPrograms,
		Run:     teredoTour,
		Up:      upTeredo(tourName, tourKinds),
	},
	{
		Name:    matrixName,
		Summary: "which kinds of NAT let two clients, or a client and an IPv6 host, find each other",
		Needs:   natPrograms,
		Run:     natMatrix,
		Up:      upTeredo(matrixName, matrixKinds),
	},
	{
		Name:    startName,
		Summary: "how long a client needs to its address, and a first packet to its host",
		Needs:   natPrograms,
		Run:     teredoStart,
	},
	{
		Name:    teredoHandoffName,
		Summary: "how long a client is cut off when its address, its NAT, its interface or its server changes",
		Needs:   natPrograms,
		Run:     teredoHandoff,
	},
	nat64Tour,
	announceExperiment,
	relayThroughput,
	relayLatency,
	relayOverload,
	relayRestart,
	relayFaults,
	relayCost,
	relayInPlace,
	clientThroughput,
	teredoPeers,
	naptLatency,
	naptBandwidth,
	naptApplications,
	nat64Scale,
	nat64Faults,
	ggsnFaults,
	nat64Cost,
	nat64InPlace,
	siitCost,
	siitInPlace,
	gprsAttach,
	gprsXLAT,
	ggsnPD,
	gprsTeredo,
	gprsQoS,
	gtpuThroughput,
	gtpuLatency,
	ims,
	sipMobility,
	callHandoff,
	sipLoad,
	umtsWLAN,
	umtsWLANStated,
	sctpSeamless,
	sctpHandover,
	sctpFailover,
	sctpThroughput,
	sctpFairness,
	sctpTSN,
	sctpRestore,
	sctpParameters,
	study2010,
	sctpTransports,
	sctpStreamsExperiment,
	{
		Name:    wireName,
		Summary: "whether the emulated links keep their rate, delay and loss on this machine",
		Run:     wire,
	},
}
