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

// echo answers each message until the association ends.
func echo(c *Conn) {
	buffer := make([]byte, 2048)
	for {
		n, info, err := c.ReadMessage(buffer)
		if err != nil {
			return
		}
		if err := c.WriteMessage(buffer[:n], Message{Stream: info.Stream, PPID: info.PPID}); err != nil {
			return
		}
	}
}

// ask sends a message and waits for the answer.
func ask(t testing.TB, c *Conn, message, buffer []byte) {
	if err := c.WriteMessage(message, Message{Stream: 1}); err != nil {
		t.Fatal(err)
	}
	if n, _, err := c.ReadMessage(buffer); err != nil || n != len(message) {
		t.Fatal(n, err)
	}
}

// BenchmarkEcho sends messages to and fro, one at a time.
func BenchmarkEcho(b *testing.B) {
	client, server := connect(b, onLoopback())
	go echo(server)
	message, buffer := make([]byte, 100), make([]byte, 2048)
	ask(b, client, message, buffer)
	b.ReportAllocs()
	before := processorTime(b)
	b.ResetTimer()
	for range b.N {
		ask(b, client, message, buffer)
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// TestNothingIsAllocatedForAMessage counts what both ends allocate, from the call that sends a message to the one that
// reads its answer.
func TestNothingIsAllocatedForAMessage(t *testing.T) {
	client, server := connect(t, onLoopback())
	go echo(server)
	message, buffer := make([]byte, 1000), make([]byte, 2048)
	for range 100 {
		ask(t, client, message, buffer)
	}
	if n := testing.AllocsPerRun(1000, func() { ask(t, client, message, buffer) }); n != 0 {
		t.Errorf("%v allocations for a message and its answer", n)
	}
}
