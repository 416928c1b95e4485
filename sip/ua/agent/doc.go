// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package agent is a SIP user agent with everything that it needs of its host: sockets on each
// address, media, and a watch of links, addresses and routes by which calls move as soon as
// the host does. The decisions are those of package ua, the media those of package media.
//
// An [Agent] runs in the network namespace of the thread that makes it:
//
//	a, err := agent.New(agent.Settings{UA: ua.Settings{AOR: me}})
//	go a.Run(ctx)
//	id, err := a.Call(ctx, "sip:bob@example.com")
//	for event := range a.Events() { … }
//
//house:shared
package agent
