// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// asStopping makes the test binary a program that was told to stop, and takes forever.
const asStopping = "stopping"

func neverStops() {
	ctx, _ := untilSignal(context.Background(), append(endSignals(), syscall.SIGUSR2)...)
	fmt.Println("started")
	<-ctx.Done()
	select {}
}

// TestSecondSignalEnds sends two signals, the second before the first can have been
// dealt with: it ends a program that is not through with stopping.
func TestSecondSignalEnds(t *testing.T) {
	for i := range 20 {
		pair := [][]syscall.Signal{{syscall.SIGTERM, syscall.SIGINT}, {syscall.SIGTERM, syscall.SIGUSR2}, {syscall.SIGUSR2, syscall.SIGTERM}}[i%3]
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), program.As(asStopping))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		for _, s := range pair {
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
		var ended *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &ended) || !ended.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("ended with %v, want by a signal", err)
		}
	}
}
