// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package lab builds small networks out of Linux network namespaces: nodes,
// links, bridges, NAT boxes, wires with a rate and a delay, processes with
// captured logs, and captures. A topology is plain Go that reads like the
// figure it reproduces:
//
//	l, err := lab.New(ctx, lab.Options{Name: "demo"})
//	if err != nil { return err }
//	defer l.Close()
//
//	client := l.Node("client")
//	nat := l.NAT("nat", lab.NATConfig{Kind: lab.PortRestricted, InputDrop: true})
//	internet := l.Bridge("internet")
//	host := l.Node("host")
//	l.Link(client, "eth0", nat, "l1")
//	l.Link(nat, "e4", internet, "")       // a bridge names its ports itself
//	l.Link(host, "eth0", internet, "")
//	client.Addr("eth0", "192.168.1.2/24").Route("default", "192.168.1.1")
//	nat.Addr("l1", "192.168.1.1/24").Addr("e4", "203.0.113.10/24")
//	host.Addr("eth0", "203.0.113.1/24")
//	if err := l.Err(); err != nil { return err }
//
// # Errors
//
// The methods that draw the topology (Node, Bridge, NAT, Link, Addr, Route,
// Forward, Sysctl) return no error: the first failure is kept, later calls do
// nothing, and Err and every method that does return an error report it.
//
// # What a node can do
//
//	p, err := n.Start(ctx, lab.Process{Name: "server", Path: bin, Args: …, Env: …})
//	line, err := p.WaitFor(ctx, "qualified")   // a regular expression
//	err = p.Stop()                             // SIGTERM, later SIGKILL
//	out, err := n.Run(ctx, "sysctl", "net.ipv4.ip_forward")
//	err = n.Do(func() error { … })             // Go code inside the namespace
//	res, err := n.Ping(ctx, lab.Ping{To: addr, Count: 5})
//	lease, err := n.Lease(ctx, "eth0")         // DHCP
//	res, err := lab.Transfer(ctx, lab.TransferConfig{From: a, To: b, …})
//	res, err := lab.Datagrams(ctx, lab.DatagramConfig{From: a, To: b, …})
//	c, err := l.Capture(n, "eth0", "FILE.pcap")
//	w, err := l.Wire(a, "eth0", b, "eth0", lab.WireConfig{…}); w.Cut(); w.Restore()
//
// # What is left behind
//
// Nothing. No object is made in the namespace the lab was started from. A
// run keeps its namespaces and a state file in a directory of its own below
// /run/isthmus-lab (below the user's own run-time directory without root).
// Close removes all of it, with the temporary folders that the state file names
// and what fast paths have pinned in its namespaces; children get SIGKILL from the
// kernel when the lab dies; the next New removes what a killed run left.
package lab
