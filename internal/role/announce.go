// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

import (
	"context"
	"net/netip"
	"time"
)

// Announced is an Instance that routers are to find by prefixes, while it works.
type Announced interface {
	Instance
	// AnnouncedPrefixes are those prefixes; nil if the configuration does not ask for it.
	// An empty list may fill, and any change, by a reload or while the instance works.
	AnnouncedPrefixes() []netip.Prefix
	// CheckSelf sends something through the instance and waits until it is back, at
	// most until ctx is done. The error says what does not work. It is called while
	// the instance runs and is ready.
	CheckSelf(ctx context.Context) error
}

// Announcement is whether the prefixes of one instance are announced.
type Announcement struct {
	// State is announced, or why not: starting, check_failed, held_down, drained,
	// nothing_to_announce, announce_failed, no_neighbor or stopped.
	State string `json:"state"`
	// Since is when the state began.
	Since time.Time `json:"since,omitzero"`
	// Problem is what the last failed check found, until all is well again, and what routers
	// could not be told.
	Problem string `json:"problem,omitempty"`
	// Prefixes are what it is about.
	Prefixes []netip.Prefix `json:"prefixes"`
}

// Neighbor is one router that announcements are made to.
type Neighbor struct {
	Address netip.Addr `json:"address"`
	AS      uint32     `json:"as"`
	// State is the word of RFC 4271, section 8.2.2, in small letters.
	State string `json:"state"`
	// Since is when the session was established; zero if it is not.
	Since time.Time `json:"since,omitzero"`
}

// StateAnnounced is the State of an Announcement that is in effect.
const StateAnnounced = "announced"
