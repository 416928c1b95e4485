// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import "testing"

// TestNoAllocation writes and reads a packet of data and a SACK, as an association at work does.
func TestNoAllocation(t *testing.T) {
	buffer, blocks := make([]byte, 0, 1500), []Block{{2, 3}}
	data := Data{TSN: 1, First: true, Last: true, User: make([]byte, 1000)}
	read := 0
	allocations := testing.AllocsPerRun(100, func() {
		packet := AppendSACK(Begin(buffer, Header{1, 2, 3}), 1, 1<<16, blocks, nil)
		packet = data.Append(packet, false)
		Seal(packet)
		_, list, err := Open(packet)
		for err == nil && len(list) > 0 {
			var c Chunk
			if c, list, err = Next(list); err != nil {
				break
			}
			if c.Type == TypeSACK {
				s, _ := ParseSACK(c.Body)
				for b := range s.Blocks() {
					read += int(b.Last)
				}
				continue
			}
			d, _ := ParseData(c)
			read += len(d.User)
		}
	})
	if allocations > 0 || read == 0 {
		t.Errorf("%v allocations, %d read", allocations, read)
	}
}

// BenchmarkPacket writes and reads a packet of 1,400 octets of user data.
func BenchmarkPacket(b *testing.B) {
	buffer := make([]byte, 0, 1500)
	data := Data{TSN: 1, First: true, Last: true, User: make([]byte, 1400)}
	b.SetBytes(1400)
	b.ReportAllocs()
	for b.Loop() {
		packet := data.Append(Begin(buffer, Header{1, 2, 3}), false)
		Seal(packet)
		_, list, err := Open(packet)
		if err != nil {
			b.Fatal(err)
		}
		if c, _, err := Next(list); err != nil || c.Type != TypeData {
			b.Fatal(err)
		}
	}
}
