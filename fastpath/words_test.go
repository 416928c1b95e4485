// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"encoding/binary"
	"fmt"
	"testing"
)

func TestMasks(t *testing.T) {
	for bits, want := range map[int]string{
		0: "00000000000000000000000000000000", 3: "e0000000000000000000000000000000", 64: "ffffffffffffffff0000000000000000",
		65: "ffffffffffffffff8000000000000000", 128: "ffffffffffffffffffffffffffffffff",
	} {
		words := IPv6Mask(bits)
		mask := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, words[0]), words[1])
		if got := fmt.Sprintf("%x", mask); got != want {
			t.Errorf("/%d is %s, want %s", bits, got, want)
		}
	}
}

func TestRates(t *testing.T) {
	for rate, want := range map[int]uint32{0: 0, -1: 0, 1: 1, 15: 1, 30: 2, 1000: 67, 100_000: 6710} {
		if got := PerWindow(rate); got != want {
			t.Errorf("%d a second are %d a window, want %d", rate, got, want)
		}
	}
}

func TestParseSampleRefuses(t *testing.T) {
	whole := make([]byte, sampleHeader+256)
	whole[20] = 100
	if s, err := ParseSample(whole); err != nil || len(s.Data) != 100 {
		t.Errorf("%d bytes, %v", len(s.Data), err)
	}
	for _, n := range []int{0, sampleHeader - 1, sampleHeader + 99} {
		if _, err := ParseSample(whole[:n]); err == nil {
			t.Errorf("%d bytes were taken for a sample", n)
		}
	}
}
