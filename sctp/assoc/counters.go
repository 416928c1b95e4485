// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

// Counters are an endpoint's: what it dropped, by reason, and what it saw.
type Counters struct {
	BadPacket       uint64 // too short, or of a wrong checksum
	BadChunk        uint64 // a length that cannot be; the rest of the packet is lost
	BadTag          uint64 // a verification tag that is not the association's
	NotOurs         uint64 // for another port, or of an address that nobody has alone
	Stranger        uint64 // the right tag from an address that is not the peer's
	OutOfTheBlue    uint64 // of no association
	BadInit         uint64 // a set-up that cannot be
	BadAddress      uint64 // that a peer has named, and that cannot be its own
	Refused         uint64 // a set-up that nobody waits for, or that there is no room for
	BadCookie       uint64 // not ours, or changed
	StaleCookie     uint64
	OldCookie       uint64 // of an association that is another by now, or has ended
	Unauthenticated uint64 // chunks that are taken behind a valid AUTH alone
	BadAuth         uint64 // an AUTH that is not the peer's
	BadChange       uint64 // an ASCONF that is out of turn, or an answer to none
	Unknown         uint64 // chunks of a type that we do not know
	Unexpected      uint64 // chunks that the state has no use for

	Duplicate    uint64 // DATA that had come before
	BeyondWindow uint64 // DATA that there was no room for, or that is too far ahead
	BadStream    uint64 // DATA of a stream that there is none of
	OldSACK      uint64 // overtaken
	BadSACK      uint64 // acknowledges what was not sent
	BadHeartbeat uint64 // an answer to none of ours

	BadICMP uint64 // of no packet of ours, or with what cannot be

	MTUProbes  uint64 // packets of a larger size than the path is known to carry
	BlackHoles uint64 // paths that did not carry any more what they had

	Sent          uint64 // DATA, for the first time
	Timeouts      uint64 // T3
	Spurious      uint64 // of these: an acknowledgement was late, and nothing lost (RFC 4138)
	Retransmitted uint64 // DATA, after T3
	Abandoned     uint64 // messages that were given up (RFC 3758)
	FastRetrans   uint64 // DATA, after three reports that it is missing
	EarlyCopies   uint64 // DATA, by another path, since one was silent
	EarlyChanges  uint64 // ASCONFs, again, since later DATA was acknowledged
	EarlyMoves    uint64 // DATA that was sent again when the other path had answered
}
