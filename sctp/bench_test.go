// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"io"
	"syscall"
	"testing"
	"time"
)

// processorTime is what the process has used of the processors: of both ends, in the kernel, too.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkThroughput sends messages over the loopback, in UDP.
func BenchmarkThroughput(b *testing.B) {
	for name, size := range map[string]int{"1000": 1000, "32Ki": 32 << 10} {
		b.Run(name, func(b *testing.B) {
			par := Defaults()
			par.SendBuffer, par.ReceiveBuffer = 1<<20, 1<<20
			client, server := connect(b, &Config{UDPPort: AnyPort, Parameters: &par})
			message := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			done := make(chan error, 1)
			go func() {
				_, err := io.CopyN(io.Discard, server, int64(b.N*size))
				done <- err
			}()
			before := processorTime(b)
			b.ResetTimer()
			for range b.N {
				if err := client.WriteMessage(message, Message{}); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
