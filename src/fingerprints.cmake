# A hash of each kernel's sources with everything of ours that they include, so that a measurement
# says which code it measured.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB_RECURSE fingerprinted CONFIGURE_DEPENDS
  cuda/*.cu cuda/*.cuh cuda/*.hpp cuda/*.cpp cuda/*.in cuda/*.cmake cpu/* dispatch/*.cpp)
set(fingerprints ${CMAKE_CURRENT_BINARY_DIR}/generated/dispatch/fingerprints.inc)
add_custom_command(OUTPUT ${fingerprints}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/fingerprint.py
          --root ${PROJECT_SOURCE_DIR} --output ${fingerprints}
  DEPENDS ${fingerprinted} ${PROJECT_SOURCE_DIR}/tools/fingerprint.py
  COMMENT "Fingerprints of the kernel sources"
  VERBATIM)
add_custom_target(flashcore_fingerprints DEPENDS ${fingerprints})
add_dependencies(flashcore_objects flashcore_fingerprints)
target_sources(flashcore_objects PRIVATE dispatch/fingerprints.cpp)
set_source_files_properties(dispatch/fingerprints.cpp PROPERTIES OBJECT_DEPENDS ${fingerprints})
