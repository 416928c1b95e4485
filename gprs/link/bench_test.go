// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

func BenchmarkAdvertise(b *testing.B) {
	r := router(b)
	buffer := make([]byte, 0, packet.MinMTU)
	for b.Loop() {
		var s State
		r.Advertise(buffer, terminal, &s, 7, start)
	}
}

func BenchmarkAnswerDHCP(b *testing.B) {
	r := router(b)
	p := question6(DHCPServers, 11, goldenOptions(b))
	buffer := make([]byte, 0, packet.MinMTU)
	var s State
	now := start
	for b.Loop() {
		now = now.Add(time.Second)
		r.Answer(buffer, terminal, &s, p, now)
	}
}
