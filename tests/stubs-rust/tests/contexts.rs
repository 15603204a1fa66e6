//! Context handles: validity, ownership, run-down. Over the loopback, where order is certain.

use std::cell::RefCell;
use std::ffi::CStr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use sojourn_ipc::rt;
use sojourn_ipc::rt::loopback::{LoopServer, Loopback};
use sojourn_stubs_rust::files::{self, FileT};

/// Opens anything; remembers what was run down.
#[derive(Debug, Default)]
struct Files {
    opened: Mutex<u64>,
    run_down: Mutex<Vec<u64>>,
}

impl files::FilesServer for Files {
    fn open_file(
        &self,
        _: &rt::Caller,
        path: &CStr,
        _how: u32,
    ) -> Result<files::FilesOpenFileOut, rt::Fault> {
        if path.is_empty() {
            return Ok(files::FilesOpenFileOut { ret: 2, file: FileT::NULL });
        }
        let mut opened = self.opened.lock().expect("unpoisoned");
        *opened += 1;
        Ok(files::FilesOpenFileOut { ret: 0, file: FileT(100 + *opened) })
    }

    fn read(
        &self,
        _: &rt::Caller,
        file: FileT,
        _offset: u64,
        size: u32,
    ) -> Result<files::FilesReadOut, rt::Fault> {
        let count = size.min(file.0 as u32) as usize;
        Ok(files::FilesReadOut { ret: 0, buffer: vec![file.0 as u8; count] })
    }

    fn write(
        &self,
        _: &rt::Caller,
        _file: FileT,
        _offset: u64,
        buffer: &[u8],
    ) -> Result<files::FilesWriteOut, rt::Fault> {
        Ok(files::FilesWriteOut { ret: 0, written: buffer.len() as u32 })
    }

    fn status(&self, _: &rt::Caller, _: FileT) -> Result<files::FilesStatusOut, rt::Fault> {
        Err(rt::Fault(0x1002))
    }

    fn share(&self, _: &rt::Caller, _: FileT) -> Result<files::FilesShareOut, rt::Fault> {
        let file = std::fs::File::open("/dev/null").map_err(|_| rt::Fault::NO_RESOURCES)?;
        Ok(files::FilesShareOut { ret: 0, fd: Some(file.into()) })
    }

    fn adopt(
        &self,
        _: &rt::Caller,
        fd: Option<std::os::fd::OwnedFd>,
    ) -> Result<files::FilesAdoptOut, rt::Fault> {
        let file = if fd.is_some() { FileT(7) } else { FileT::NULL };
        Ok(files::FilesAdoptOut { ret: 0, file })
    }

    fn list(&self, _: &rt::Caller, _: &CStr) -> Result<files::FilesListOut, rt::Fault> {
        Ok(files::FilesListOut { ret: 0, entries: None })
    }

    fn close_file(&self, _: &rt::Caller, file: &mut FileT) -> Result<u32, rt::Fault> {
        *file = FileT::NULL;
        Ok(0)
    }

    fn file_t_run_down(&self, handle: FileT) {
        self.run_down.lock().expect("unpoisoned").push(handle.0);
    }
}

type Client = files::FilesClient<Loopback>;

fn start() -> (Arc<Files>, Rc<RefCell<dyn rt::Service<LoopServer>>>) {
    let server = Arc::new(Files::default());
    let service = files::FilesService::<Files>::new(Arc::clone(&server));
    (server, Rc::new(RefCell::new(service)))
}

fn client(service: &Rc<RefCell<dyn rt::Service<LoopServer>>>, index: u32) -> Client {
    Client::bind(Loopback::new(service, index)).expect("bound")
}

#[test]
fn a_handle_is_good_for_its_client_until_closed() {
    let (_, service) = start();
    let mut one = client(&service, 1);
    let mut two = client(&service, 2);
    let file = one.open_file(c"/a", files::OPEN_READ).expect("called").file;
    assert!(!file.is_null());
    assert_ne!(file.0, 101, "what travels is not the server's number");
    assert_eq!(one.read(file, 0, 10).expect("called").buffer, [101; 10]);
    let foreign = two.read(file, 0, 10).expect_err("refused");
    assert_eq!(foreign, rt::CallError::Fault(rt::Fault::BAD_CONTEXT));
    let mut closing = file;
    assert_eq!(one.close_file(&mut closing).expect("called"), 0);
    assert!(closing.is_null());
    let stale = one.read(file, 0, 10).expect_err("refused");
    assert_eq!(stale, rt::CallError::Fault(rt::Fault::BAD_CONTEXT));
    // The slot is used again, the old handle stays stale.
    let again = one.open_file(c"/b", files::OPEN_READ).expect("called").file;
    assert_ne!(again, file);
    assert!(one.read(file, 0, 1).is_err());
    assert!(one.read(again, 0, 1).is_ok());
}

#[test]
fn what_a_client_leaves_is_run_down() {
    let (server, service) = start();
    let mut one = client(&service, 1);
    let mut two = client(&service, 2);
    let _kept = one.open_file(c"/a", 0).expect("called").file;
    let mut closed = one.open_file(c"/b", 0).expect("called").file;
    let others = two.open_file(c"/c", 0).expect("called").file;
    one.close_file(&mut closed).expect("called");
    drop(one);
    assert_eq!(*server.run_down.lock().expect("unpoisoned"), [101]);
    assert!(two.read(others, 0, 1).is_ok());
}

#[test]
fn descriptors_travel_both_ways() {
    use std::os::fd::AsFd as _;
    let (_, service) = start();
    let mut one = client(&service, 1);
    let shared = one.share(FileT::NULL).expect("called");
    let file = shared.fd.expect("a descriptor");
    let adopted = one.adopt(Some(file.as_fd())).expect("called");
    assert!(!adopted.file.is_null());
    assert!(one.adopt(None).expect("called").file.is_null());
}

#[test]
fn the_random_driver_notices_a_wrong_value() {
    let oracle = files::files_random::FilesOracle::new(1);
    let service: Rc<RefCell<dyn rt::Service<LoopServer>>> =
        Rc::new(RefCell::new(files::FilesService::<files::files_random::FilesOracle>::new(oracle)));
    let mut client = client(&service, 1);
    assert!(files::files_random::drive(&mut client, 2, 1).is_err());
}
