// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package media carries the RTP of calls.
//
//house:part
package media
