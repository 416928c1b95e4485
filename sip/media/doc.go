// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package media carries the RTP of a call (RFC 3550, 3551), G.711 in packets of 20 ms, for
// user agents whose host moves. A [Stream] is one end of it, as an engine: packets and time go
// in, packets and events come out, and neither socket nor clock is in it. Package mediaio
// gives it both; who has sockets of another kind does so as follows.
//
//	s, err := media.New(media.Settings{Name: name, Source: media.Tone(440), Sink: recorder, Latch: true}, rand.Reader, now)
//	err = s.Agree(agreement, now)  // what package offer has made of an offer and its answer
//	err = s.SendBy(0, now)         // the path: a pair of sockets at a local address
//	for {
//		... at s.Next():           s.Tick(now, &out)
//		... a datagram at a socket: s.Handle(media.Socket(0, false), from, datagram, now, &out)
//		... out.UDP is to be sent, out.Events has happened; then:
//		out.Reset()
//	}
//
// # Paths
//
// A stream receives by all paths and sends by one. When the host moves, [Stream.Mark] notes
// the time and [Stream.SendBy] changes the path from the next packet on, before signalling has
// said a word; what is under way to old sockets is taken as long as they are open. The event
// [PathHeard] says that the peer sends to the new one. [Stream.Handoff] tells what it has
// cost.
//
// # Where media goes
//
// To where the peer's SDP says; with [Settings.Latch], to where the peer's media comes from,
// under guards: the SSRC is the peer's, number and timestamp continue what has come, two
// packets in a row say so, nothing comes from the old place meanwhile, and either signalling
// has just said that something changes or the old place is silent. So a call goes on although
// the re-INVITE is lost or late, and a stranger who does not see the packets cannot draw media
// to itself. One who does can, if the peer is silent; keys prevent that. While no source of the peer's is
// known, or the one that is has been silent since SDP named another place, its media has to come from where SDP
// says, or beside it; where that is a private address, behind a NAT, the first who sends is taken for the peer.
//
// # What is played
//
// A [Sink] gets each packet once, with its place in the sound by the peer's timestamps. A
// recording (package wav) therefore equals what was sent but for what is missing. There is no
// buffer that smooths for a loudspeaker.
//
// # Bounds
//
// Nothing grows with what strangers send, a packet costs the same whatever came before, and
// none costs memory; every packet that is not taken is counted by its reason ([Drop]). Reports
// by RTCP, twelve a minute, do allocate.
//
//house:part
package media
