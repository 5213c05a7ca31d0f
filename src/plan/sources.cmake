# A hash of each kernel's sources, compiled into the library: measurements of other sources
# do not apply.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(hashes ${CMAKE_CURRENT_BINARY_DIR}/generated/plan/source_fingerprints.inc)
file(GLOB_RECURSE hashed CONFIGURE_DEPENDS cpu/* cuda/* problem/*.hpp kernel/*.hpp)
add_custom_command(OUTPUT ${hashes}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/fingerprint.py
          --root ${PROJECT_SOURCE_DIR} --all ${hashes}
  DEPENDS ${hashed} ${PROJECT_SOURCE_DIR}/tools/fingerprint.py
  COMMENT "Hashes of the kernels' sources"
  VERBATIM)
set_source_files_properties(plan/source_fingerprints.cpp PROPERTIES OBJECT_DEPENDS ${hashes})
target_sources(flashcore_objects PRIVATE plan/source_fingerprints.cpp)
