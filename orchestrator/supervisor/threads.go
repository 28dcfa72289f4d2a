package supervisor

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads init makes before the script runs. A script
// may use up the container's processes, and Go's runtime ends the program when
// it cannot make a thread; with these at hand it need not. Init has at most
// this many blocking calls at a time: a read of each output, a write of the
// input, a wait, the collector's file, the relay's copies by the poller.
const spareThreads = 12

// reserveThreads makes n threads and leaves them to the runtime, which keeps
// idle ones for good.
func reserveThreads(n int) {
	var made, gone sync.WaitGroup
	made.Add(n)
	release := make(chan struct{})
	for range n {
		gone.Go(func() {
			runtime.LockOSThread() // so that each has a thread of its own
			defer runtime.UnlockOSThread()
			made.Done()
			<-release
		})
	}
	made.Wait()
	close(release)
	gone.Wait()
}
